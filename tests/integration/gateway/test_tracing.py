"""Traces of a gateway, as the real OpenTelemetry collector gets them, and the exemplars that lead to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.exposition import generate_latest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.collector import Collector, SeenSpan, collector
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules, RunningGateway

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PRODUCER = "b7ad6b7169203331"
Traced = Callable[..., RunningGateway]
LARGE = 60_000
"""Bytes of a record in a request that is forwarded as a whole."""


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with collector(tmp_path_factory.mktemp("collector")) as running:
        yield running


@pytest.fixture
def traced(
    spans: Collector,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c2: KafkaCluster,
    bananas: str,
) -> Traced:
    """Starts a gateway that traces, before a topic on c2."""
    create_topic(kafka_c2, bananas, 1)
    table = rules.to("c2", [bananas])
    return lambda **settings: start_gateway(table, **{"tracing_endpoint": spans.grpc, **settings})


def trace_id(digit: object) -> str:
    return f"{digit}{TRACE_ID[1:]}"


def write(address: str, topic: str, traces: list[str], compression: str = "none") -> None:
    """Records with these trace contexts (empty: none), in one batch."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 200, "compression.type": compression})
    for trace in traces:
        headers: list[tuple[str, Any]] = [("traceparent", trace.encode())] if trace else []
        producer.produce(topic, b"x", partition=0, headers=headers)
    assert producer.flush(60) == 0


def sampled(digit: object) -> str:
    return f"00-{trace_id(digit)}-{PRODUCER}-01"


def produces(spans: Collector, trace: str) -> list[SeenSpan]:
    return [span for span in spans.spans(trace) if span.name.startswith("Produce")]


@pytest.mark.parametrize(("digit", "size"), [(1, 1), (2, LARGE)], ids=["small", "large"])
def test_a_produce_with_a_sampled_record_has_a_span_in_the_records_trace(
    digit: int, size: int, spans: Collector, traced: Traced, bananas: str
) -> None:
    gateway = traced()
    producer = Producer({"bootstrap.servers": gateway.address, "client.id": "shop"})
    producer.produce(bananas, b"opens the connection: the next one is forwarded without a plan")
    assert producer.flush(60) == 0
    producer.produce(bananas, b"x" * size, headers=[("a", b"b"), ("traceparent", sampled(digit).encode())])
    assert producer.flush(60) == 0
    span = spans.awaited({f"Produce {bananas}"}, trace_id(digit))[f"Produce {bananas}"]
    assert (span.parent_id, span.kind, span.service) == (PRODUCER, "server", "kafka-mesh-gateway")
    told = span.attributes
    assert (told["messaging.destination.name"], told["kafka_mesh.cluster"]) == (bananas, "c2")
    assert (told["messaging.client.id"], told["messaging.operation.name"]) == ("shop", "Produce")
    assert 0 < told["kafka_mesh.upstream.duration"] <= (span.end_ns - span.start_ns) / 1e9
    assert not span.failed


def test_the_first_produce_goes_by_its_plan_and_has_its_span_all_the_same(
    spans: Collector, traced: Traced, bananas: str
) -> None:
    gateway = traced(tracing_endpoint=spans.http, tracing_protocol="http/protobuf")
    write(gateway.address, bananas, [sampled(3)])
    wait_until(lambda: produces(spans, trace_id(3)), "the span of the first Produce")
    (span,) = produces(spans, trace_id(3))
    assert (span.parent_id, span.kind) == (PRODUCER, "server")


def test_records_of_one_batch_have_their_request_in_each_of_their_traces_and_others_have_none(
    spans: Collector, traced: Traced, bananas: str
) -> None:
    gateway = traced(tracing_rate=1)
    unsampled = f"00-{trace_id(4)}-{PRODUCER}-00"
    write(gateway.address, bananas, [unsampled])
    write(gateway.address, bananas, [sampled(5), "", unsampled, sampled(6)])
    wait_until(lambda: produces(spans, trace_id(5)) and produces(spans, trace_id(6)), "both traces have the request")
    assert spans.spans(trace_id(4)) == []


def test_the_rate_begins_traces_of_requests_without_a_context(spans: Collector, traced: Traced, bananas: str) -> None:
    gateway = traced(tracing_rate=1)
    for _ in range(2):
        write(gateway.address, bananas, [""])
    reader = Consumer({"bootstrap.servers": gateway.address, "group.id": bananas, "auto.offset.reset": "earliest"})
    reader.subscribe([bananas])
    assert len(reader.consume(2, 60)) == 2
    reader.close()
    wanted = {"ApiVersions", "Metadata", f"Produce {bananas}", "Fetch", "JoinGroup"}
    wait_until(lambda: wanted <= {span.name for span in spans.spans()}, f"spans {wanted}")
    assert {span.parent_id for span in spans.spans() if span.name == f"Produce {bananas}"} == {""}


def test_compressed_batches_are_not_opened(spans: Collector, traced: Traced, bananas: str) -> None:
    gateway = traced()
    write(gateway.address, bananas, [sampled(7)] * 20, compression="lz4")
    write(gateway.address, bananas, [sampled(8)])
    wait_until(lambda: produces(spans, trace_id(8)), "what came later")
    assert spans.spans(trace_id(7)) == []


def test_histograms_name_a_trace_for_scrapers_that_ask_for_openmetrics(
    spans: Collector, traced: Traced, bananas: str
) -> None:
    gateway = traced()
    write(gateway.address, bananas, [""])
    write(gateway.address, bananas, [sampled("a")])
    spans.awaited({f"Produce {bananas}"}, trace_id("a"))
    text = generate_latest(REGISTRY).decode()  # type: ignore[no-untyped-call]
    for side in ("gateway", "upstream"):
        line = rf'kafka_mesh_gateway_request_{side}_seconds_bucket{{[^}}]*api="Produce"[^}}]*}} \S+ # {{([^}}]*)}}'
        named = re.findall(line, text)
        assert any(trace_id("a") in each for each in named), named
