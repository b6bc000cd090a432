"""Traces of a sidecar, as the real OpenTelemetry collector gets them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.fixtures.backend import Backend, status
from tests.fixtures.collector import Collector, collector
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.reactive_world import reading, wait_for_commit
from tests.integration.sidecar.world import NOWHERE, Kafka, SidecarWorld, started

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with collector(tmp_path_factory.mktemp("collector")) as running:
        yield running


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def produce(world: SidecarWorld, topic: str, trace: str, flags: str = "01", status: int = 200) -> None:
    body = {"valueFormat": "string", "records": [{"key": None, "value": "1", "partition": 0}]}
    answer = world.http.post(
        f"/producers/{topic}", json=body, headers={"traceparent": f"00-{trace}-{CALLER}-{flags}"} if trace else {}
    )
    assert answer.status_code == status, answer.text


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("kafka_mesh_sidecar_spans_total", {"outcome": outcome}) or 0.0


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_one_trace_leads_from_the_request_to_the_call_of_the_backend(
    kafka: Kafka, backend: Backend, orders: str, group: str, spans: Collector, protocol: str
) -> None:
    trace_id = f"{'1' if protocol == 'grpc' else '2'}{TRACE_ID[1:]}"
    endpoint = spans.grpc if protocol == "grpc" else spans.http
    with reading(kafka, backend, orders, group, tracing_endpoint=endpoint, tracing_protocol=protocol) as world:
        produce(world, orders, trace_id)
        backend.wait_for_records(1)
        names = {"POST produce", f"send {orders}", f"process {orders}", "POST"}
        found = spans.awaited(names, trace_id)
    request, send, process, call = (
        found[name] for name in ("POST produce", f"send {orders}", f"process {orders}", "POST")
    )
    assert request.parent_id == CALLER
    assert [send.parent_id, process.parent_id, call.parent_id] == [request.span_id, send.span_id, process.span_id]
    assert [one.kind for one in (request, send, process, call)] == ["server", "producer", "consumer", "client"]
    assert {one.service for one in found.values()} == {"kafka-mesh-sidecar"}
    (record,) = kafka.read(orders, 1)
    assert dict(record.headers)["traceparent"].decode() == f"00-{trace_id}-{send.span_id}-01"
    (posted,) = backend.calls
    assert posted.headers["traceparent"] == f"00-{trace_id}-{call.span_id}-01"
    assert process.attributes["messaging.destination.name"] == orders
    assert request.start_ns <= send.start_ns <= send.end_ns <= request.end_ns


def test_a_trace_that_is_not_sampled_is_passed_on_and_not_recorded(
    kafka: Kafka, backend: Backend, orders: str, group: str, spans: Collector
) -> None:
    unsampled, after = f"3{TRACE_ID[1:]}", f"4{TRACE_ID[1:]}"
    with reading(kafka, backend, orders, group, tracing_endpoint=spans.grpc, tracing_rate=1) as world:
        produce(world, orders, unsampled, flags="00")
        backend.wait_for_records(1)
        produce(world, orders, after)
        spans.awaited({"POST"}, after)  # what came before it has come by now
    assert spans.spans(unsampled) == []
    assert backend.calls[0].headers["traceparent"] == f"00-{unsampled}-{CALLER}-00"


def test_a_request_without_a_context_begins_a_trace_by_the_rate(kafka: Kafka, orders: str, spans: Collector) -> None:
    with started(kafka.bootstrap, tracing_endpoint=spans.grpc, tracing_rate=1) as world:
        produce(world, orders, "")
        wait_until(lambda: any(one.name == f"send {orders}" for one in spans.spans()), "a trace that nobody asked for")
    (send,) = [one for one in spans.spans() if one.name == f"send {orders}"]
    (request,) = [one for one in spans.spans(send.trace_id) if one.name == "POST produce"]
    assert (request.parent_id, send.parent_id) == ("", request.span_id)


def test_a_batch_is_a_child_of_its_first_trace_and_linked_to_the_others(
    kafka: Kafka, backend: Backend, orders: str, group: str, spans: Collector
) -> None:
    first, second = f"5{TRACE_ID[1:]}", f"6{TRACE_ID[1:]}"
    parents = [f"00-{first}-{CALLER}-01", f"00-{second}-00f067aa0ba902b7-01", f"00-{second}-{CALLER}-00"]
    kafka.write(orders, *({"value": b"1", "partition": 0, "headers": [("traceparent", each)]} for each in parents))
    with reading(kafka, backend, orders, group, tracing_endpoint=spans.grpc):
        process = spans.awaited({f"process {orders}"}, first)[f"process {orders}"]
    assert (process.parent_id, process.links) == (CALLER, ("00f067aa0ba902b7",))
    assert process.attributes["messaging.batch.message_count"] == 3


def test_each_failed_call_is_a_span_with_its_reason(
    kafka: Kafka, backend: Backend, orders: str, group: str, spans: Collector
) -> None:
    trace_id = f"7{TRACE_ID[1:]}"
    backend.next(status(503), status(400))
    with reading(kafka, backend, orders, group, tracing_endpoint=spans.grpc, backend_max_retries=3) as world:
        produce(world, orders, trace_id)
        spans.awaited({f"process {orders}"}, trace_id)
    calls = sorted((one for one in spans.spans(trace_id) if one.name == "POST"), key=lambda one: one.start_ns)
    assert [(one.failed, one.attributes.get("error.type")) for one in calls][:2] == [(True, "503"), (True, "400")]
    assert not calls[-1].failed


def test_a_collector_that_is_away_loses_spans_and_delays_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    sent, failed = counted("sent"), counted("failed")
    away: dict[str, Any] = {"tracing_endpoint": f"http://{NOWHERE}", "tracing_max_spans": 4, "tracing_timeout_s": 0.2}
    with reading(kafka, backend, orders, group, **away) as world:
        for _ in range(10):
            produce(world, orders, TRACE_ID)
        wait_for_commit(kafka, group, orders, 0, 10)
        wait_until(lambda: counted("failed") > failed, "spans that were not taken are counted")
    assert counted("sent") == sent


def test_a_collector_that_hangs_fills_the_queue_and_delays_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    lost = counted("lost")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are made, and nobody answers
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hangs: dict[str, Any] = {"tracing_endpoint": endpoint, "tracing_max_spans": 4, "tracing_timeout_s": 60}
        with reading(kafka, backend, orders, group, **hangs) as world:
            for _ in range(10):
                produce(world, orders, TRACE_ID)
            wait_for_commit(kafka, group, orders, 0, 10)
            assert counted("lost") > lost
