"""Blocks of pages that need nothing but a running mesh, typed one after another, on a mesh that no other test uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from local.layout import ADMIN, CERTIFICATES_FOLDER, STATE_FOLDER
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.pages import ROOT, steps, take
from tests.fixtures.toolchains import need

HOW_TO = ROOT / "docs" / "how-to"
REFERENCE = ROOT / "docs" / "reference"
CONTROLLED = (  # each page leaves users, grants, ACLs and rules that no other one asks for
    HOW_TO / "authorize-clients.md",
    HOW_TO / "client-authentication.md",
    HOW_TO / "declare-subscriptions.md",
    HOW_TO / "limit-clients.md",
    HOW_TO / "member-certificates.md",
    HOW_TO / "migrate-from-envoy.md",
    HOW_TO / "protect-fields.md",
    HOW_TO / "roles.md",
    HOW_TO / "tenants.md",
    HOW_TO / "validate-records.md",
    ROOT / "meshctl" / "README.md",
)
WITH_A_SIDECAR = (  # in this order: the first one makes the consumer that another one reads with
    ROOT / "services" / "sidecar" / "README.md",
    REFERENCE / "sidecar-formats.md",
    REFERENCE / "sidecar-calls.md",
)
REGISTERED_BY_HAND = (HOW_TO / "production-topology.md", HOW_TO / "recover-from-loss.md")
"""test_how_to.py takes their other steps."""
CURL = "curl -sS --fail-with-body --max-time 30 "
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def mesh_of_pages(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("pages") / STATE_FOLDER, formatted=True) as mesh:
        mesh.meshctl("rule", "default", "c1")
        yield mesh


@pytest.fixture
def instead(mesh_of_pages: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names of the pages, each with the name here."""
    monkeypatch.setenv("MESHCTL_PASSWORD", "a password of a test")
    monkeypatch.setenv("MESHCTL_TLS_FOLDER", str(mesh_of_pages.state / CERTIFICATES_FOLDER / ADMIN))
    status = json.loads(mesh_of_pages.meshctl("status", "-o", "json").stdout)
    clusters = {
        "broker-1:9092,broker-2:9092,broker-3:9092": mesh_of_pages.cluster("c1"),
        "other-1:9092,other-2:9092,other-3:9092": mesh_of_pages.cluster("c2"),
    }
    return clusters | {
        "localhost:8084": mesh_of_pages.endpoints["sidecar"],
        "control.example.com:7070": mesh_of_pages.control,
        "users.yaml": str(tmp_path / "users.yaml"),
        "kafka_c1=HOST:PORT": f"kafka_c1={mesh_of_pages.cluster('c1')}",
        "kafka_c2=HOST:PORT": f"kafka_c2={mesh_of_pages.cluster('c2')}",
        "kafka_c3=HOST:PORT": "kafka_c3=localhost:9",
        "120": str(status["revision"]),
    }


@pytest.mark.parametrize("page", CONTROLLED, ids=lambda page: page.stem)
def test_control_takes_each_block(page: Path, mesh_of_pages: Mesh, instead: dict[str, str]) -> None:
    found = steps(page.read_text(encoding="utf-8"))
    assert found
    for step in found:
        take(step, mesh_of_pages.state.parent, instead)


@pytest.mark.parametrize("page", REGISTERED_BY_HAND, ids=lambda page: page.stem)
def test_an_operator_types_meshctl(page: Path, mesh_of_pages: Mesh, instead: dict[str, str]) -> None:
    (step,) = [step for step in steps(page.read_text(encoding="utf-8")) if step.typed.startswith("meshctl ")]
    take(step, mesh_of_pages.state.parent, instead)


def test_the_sidecar_takes_each_block(mesh_of_pages: Mesh, instead: dict[str, str]) -> None:
    need("curl", "jq")
    for page in WITH_A_SIDECAR:
        found = steps(page.read_text(encoding="utf-8"))
        assert found, page
        for step in found:
            take(replace(step, typed=step.typed.replace("curl ", CURL)), mesh_of_pages.state.parent, instead)
