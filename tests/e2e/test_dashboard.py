"""The console of `make run`: where it is, and what it shows before anybody logs in."""

from __future__ import annotations

import httpx

from tests.fixtures.consoles import text_of
from tests.fixtures.meshes import Mesh

CALL_S = 60.0


def test_meshctl_finds_the_console_which_reads_and_changes_nothing(mesh: Mesh) -> None:
    address = mesh.meshctl("dashboard", "--no-open").stdout.strip()
    answer = httpx.get(address, timeout=CALL_S)
    assert answer.status_code == 200
    assert "gateway-1 applied" in text_of(answer.text)
    assert "Reading only" in answer.text
    assert 'method="post"' not in answer.text
    refused = httpx.post(f"{address}freeze", timeout=CALL_S)
    assert refused.status_code == 403
