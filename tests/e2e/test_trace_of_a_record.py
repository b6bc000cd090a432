"""One trace of one record through a whole mesh: HTTP request, sidecar, gateway, content rule, consumer, backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.collector import collector
from tests.fixtures.meshes import Mesh
from tests.fixtures.record_rules import Side
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
ORDERS, GERMAN = "apples", "bananas"
"""Topics of a new mesh, on c1 and on c2."""


def test_one_trace_shows_the_whole_way_of_a_record(
    mesh_factory: Callable[..., Mesh], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector(tmp_path) as spans, Backend().running() as backend:
        for service in ("GATEWAY", "ROUTER", "SIDECAR"):
            monkeypatch.setenv(f"KAFKA_MESH_{service}_TRACING_ENDPOINT", spans.grpc)
        monkeypatch.setenv("KAFKA_MESH_SIDECAR_REACTIVE_TOPICS", GERMAN)
        monkeypatch.setenv("KAFKA_MESH_SIDECAR_BACKEND_URL", backend.host_url)
        mesh = mesh_factory()
        Side("c1", mesh.cluster("c1")).create(f"{ORDERS}.dlq")
        mesh.meshctl(
            "content", "create", "german", "--from", "c1", "--topic", ORDERS,
            "--when", "value.country == 'DE'", "--to", f"c2/{GERMAN}",
        )  # fmt: skip
        body = {"valueFormat": "json", "records": [{"key": "k", "value": {"country": "DE"}}]}
        traced = {"traceparent": f"00-{TRACE_ID}-{CALLER}-01"}
        for headers in ({}, traced):  # the first request opens the connections
            answer = httpx.post(f"{mesh.sidecar}/producers/{ORDERS}", json=body, headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
        wait_until(lambda: len(backend.records) == 2, "both records reach the backend")
        way = {
            "POST produce": ("sidecar", "server"),
            f"send {ORDERS}": ("sidecar", "producer"),
            f"Produce {ORDERS}": ("gateway", "server"),
            f"forward {GERMAN}": ("router", "producer"),
            f"process {GERMAN}": ("sidecar", "consumer"),
            "POST": ("sidecar", "client"),
        }
        found = spans.awaited(set(way), TRACE_ID, seconds=60)
    assert {name: (span.service.removeprefix("kafka-mesh-"), span.kind) for name, span in found.items()} == way
    ids = {name: span.span_id for name, span in found.items()}
    assert {name: span.parent_id for name, span in found.items()} == {
        "POST produce": CALLER,
        f"send {ORDERS}": ids["POST produce"],
        f"Produce {ORDERS}": ids[f"send {ORDERS}"],
        f"forward {GERMAN}": ids[f"send {ORDERS}"],
        f"process {GERMAN}": ids[f"forward {GERMAN}"],
        "POST": ids[f"process {GERMAN}"],
    }
    assert backend.calls[-1].headers["traceparent"] == f"00-{TRACE_ID}-{ids['POST']}-01"
    assert not any(span.failed for span in found.values())
