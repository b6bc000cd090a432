"""Forms of other sites, and names that lead here."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from services.console.headers import POLICY, host_of, is_from_here


@pytest.mark.parametrize(
    ("sent", "own"),
    [
        ({"host": "mesh:8090"}, True),
        ({"host": "mesh:8090", "origin": "http://mesh:8090", "sec-fetch-site": "same-origin"}, True),
        ({"host": "mesh.example", "origin": "https://mesh.example"}, True),
        ({"host": "mesh:8090", "origin": "http://mesh:8091"}, False),
        ({"host": "mesh:8090", "origin": "null"}, False),
        ({"host": "mesh:8090", "origin": ""}, False),
        ({"host": "mesh:8090", "sec-fetch-site": "cross-site"}, False),
        ({"host": "mesh:8090", "sec-fetch-site": "same-site"}, False),
        ({"host": "mesh:8090", "sec-fetch-site": "none"}, False),
    ],
)
def test_whether_a_form_is_of_this_console(sent: dict[str, str], own: bool) -> None:
    assert is_from_here(Headers(sent)) is own


def test_the_name_of_the_host_without_its_port() -> None:
    hosts = ("Mesh:8090", "mesh", "[::1]:8090", "[::1]", "")
    assert [host_of(Headers({"host": each})) for each in hosts] == ["mesh", "mesh", "[::1]", "[::1]", ""]


def test_the_policy_allows_no_script_inside_a_page_and_no_other_host() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "*" not in POLICY
