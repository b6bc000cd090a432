"""The contract as others read it: the document, and the page that shows it."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import yaml

from services.sidecar.api.app import build_app
from services.sidecar.api.contract import CONTRACT
from services.sidecar.api.document import DocumentEndpoints


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app(DocumentEndpoints().routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
        yield client


async def test_the_document_is_the_one_that_requests_are_checked_by(http: httpx.AsyncClient) -> None:
    answer = await http.get("/spec.yaml")
    assert answer.headers["content-type"].startswith("text/yaml")
    document: Any = yaml.safe_load(answer.text)
    assert document["openapi"] == "3.1.0"
    methods = {"get", "put", "post", "delete"}
    operations = [item[method] for item in document["paths"].values() for method in methods & item.keys()]
    assert {operation["operationId"] for operation in operations} == set(CONTRACT.operations)
    assert all("security" in operation and operation["summary"] for operation in operations)


async def test_the_address_alone_leads_to_the_page(http: httpx.AsyncClient) -> None:
    answer = await http.get("/", follow_redirects=True)
    assert (answer.status_code, answer.url.path) == (200, "/specui.html")
    assert "Kafka Mesh sidecar" in answer.text


async def test_the_page_and_its_parts_come_from_here(http: httpx.AsyncClient) -> None:
    page = (await http.get("/specui.html")).text
    assert "//" not in page
    parts = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert {part.partition("?")[0] for part in parts} == {
        "favicon.ico",
        "specui/swagger-ui.css",
        "specui/swagger-ui-bundle.js",
    }
    for part in parts:
        answer = await http.get(f"/{part}")
        assert (answer.status_code, bool(answer.content)) == (200, True)


@pytest.mark.parametrize("asset", ["index.html", "other.js", "..%2fdocument.py", "%00"])
async def test_other_files_of_the_package_are_none_of_the_page(http: httpx.AsyncClient, asset: str) -> None:
    assert (await http.get(f"/specui/{asset}")).status_code == 404


@pytest.mark.parametrize("path", ["/spec.yaml/", "/SPEC.yaml", "/specui", "/specui/"])
async def test_a_path_that_is_not_in_the_document_is_none(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "ERR10048")
