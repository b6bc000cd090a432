"""A sidecar that asks ksqlDB for its backend, and gives it the rows of a query that it follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.backend import Backend, status
from tests.fixtures.certificates import Authority
from tests.fixtures.ksqldb import BREAK, KsqldbStandIn, Script, ksqldb
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import NOWHERE, SidecarWorld, started

PULL = "select * from Q where id='1';"
PUSH = "SELECT * FROM S EMIT CHANGES;"


@pytest.fixture
def server() -> Iterator[KsqldbStandIn]:
    with ksqldb() as stand_in:
        yield stand_in


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def health(sidecar: SidecarWorld) -> Any:
    return sidecar.http.get("/health").json()


def test_the_backend_asks_and_has_rows_by_name(server: KsqldbStandIn) -> None:
    server.scripts[PULL] = Script(b"[1,12345678901234567890123]\n", is_push=False)
    with started(NOWHERE, ksqldb_url=server.url) as sidecar:
        answer = sidecar.http.post("/ksqldb/active", json={"query": PULL, "queryType": "pull", "tableScanEnable": True})
        assert (answer.status_code, answer.json()) == (200, [{"ID": 1, "NAME": 12345678901234567890123}])
        [asked] = server.asked
        assert asked.properties == {"ksql.query.pull.table.scan.enabled": True}
        wrong = sidecar.http.post("/ksqldb/active", json={"query": "SELEC 1;"})
        assert (wrong.status_code, wrong.json()["code"]) == (400, "ERR30002")
        assert "mismatched input" in wrong.json()["description"]


def test_rows_of_the_query_come_to_the_backend_through_breaks_of_both_sides(
    server: KsqldbStandIn, backend: Backend
) -> None:
    script = server.scripts[PUSH] = Script([1, "a"], {"continuationToken": "t1"})
    backend.always(status(201))
    backend.next(status(503, retry_after="0"))
    settings: dict[str, Any] = {
        "ksqldb_query": PUSH,
        "ksqldb_initial_streams": ["CREATE STREAM S (ID INT, NAME STRING) WITH (...);"],
        "ksqldb_backend_url": backend.host_url,
        "ksqldb_backend_path": "/rows",
        "ksqldb_retry_ms": 50,
        "health_json": True,
    }
    with started(NOWHERE, ksqldb_url=server.url, **settings) as sidecar:
        wait_until(lambda: len(backend.calls) == 2, "the row comes again after the backend was busy")
        script.add([2, "b"], BREAK)
        wait_until(lambda: len(backend.calls) == 3, "the second row comes")
        script.add([3, "c"])
        wait_until(lambda: len(backend.calls) == 4, "rows go on after the break")
        assert [(call.path, call.body) for call in backend.calls[1:]] == [
            ("/rows", b'[1, "a"]'), ("/rows", b'[2, "b"]'), ("/rows", b'[3, "c"]'),
        ]  # fmt: skip
        assert server.asked[-1].request_properties == {"request.ksql.query.push.continuation.token": "t1"}
        assert server.statements == settings["ksqldb_initial_streams"]
        shown = health(sidecar)["details"]["ksqldb"]
        assert shown == {"queryId": shown["queryId"], "state": "running", "rows": 3, "skipped": 0}
        assert shown["queryId"].startswith("q")


def test_a_sidecar_whose_query_is_not_followed_is_not_ready(backend: Backend) -> None:
    with started(
        NOWHERE,
        ksqldb_url=f"http://{NOWHERE}",
        ksqldb_query=PUSH,
        ksqldb_backend_url=backend.host_url,
        health_json=True,
    ) as sidecar:
        fault = wait_until(lambda: health(sidecar)["checks"]["ksqldb"], "health has a word about the query")
        assert fault.startswith("the ksqlDB query is not followed: ")
        assert health(sidecar)["status"] == "ERROR"
        assert sidecar.http.get("/health/liveness").status_code == 200


def test_over_tls_with_a_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stand_in = KsqldbStandIn()
    stand_in.user = ("me", "secret")
    stand_in.scripts[PULL] = Script([1, "a"], is_push=False)
    with ksqldb(stand_in, tls=authority.sign("ksqldb")) as server:
        settings = {"ksqldb_ca_location": authority.certificate, "ksqldb_user_info": "me:secret"}
        with started(NOWHERE, ksqldb_url=server.url, **settings) as sidecar:
            answer = sidecar.http.post("/ksqldb/active", json={"query": PULL})
            assert answer.json() == [{"ID": 1, "NAME": "a"}]
        with started(NOWHERE, ksqldb_url=server.url) as stranger:
            refused = stranger.http.post("/ksqldb/active", json={"query": PULL})
            assert (refused.status_code, refused.json()["code"]) == (503, "ERR12965")
