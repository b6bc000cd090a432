"""Mirrors carry on the traces of records, as the real OpenTelemetry collector gets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.tracing import TracingSettings
from services.router.forwarding.orders import RunRule
from tests.fixtures.collector import collector
from tests.fixtures.record_rules import Side, Workers, ends, mirror
from tests.fixtures.waiting import wait_until

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PRODUCER = "b7ad6b7169203331"


@pytest.mark.parametrize("expression", ["", "true"], ids=["copied", "judged"])
def test_a_mirrored_record_carries_on_its_trace_and_others_stay_as_they_are(
    c1: Side, c2: Side, sides: tuple[Side, Side], topic: str, tmp_path: Path, expression: str
) -> None:
    c1.create(topic)
    c2.will_have(topic)
    producer = c1.producer()
    parents = [f"00-{TRACE_ID}-{PRODUCER}-01", f"00-{TRACE_ID}-{PRODUCER}-00", ""]
    for parent in parents:
        producer.produce(topic, b"x", headers=[("a", b"1"), *([("traceparent", parent)] if parent else [])])
    assert producer.flush(60) == 0
    with collector(tmp_path) as spans:
        told = TracingSettings(tracing_endpoint=spans.grpc).model_dump_json()
        with Workers(tmp_path / "workers.log", sides, [f"--tracing={told}"]).running() as workers:
            workers.run(RunRule(mirror("m", topic, filter=expression), 12, 11))
            workers.wait_until_caught_up("m", ends(c1, topic))
            wait_until(spans.spans, "the mirror's span")
        (span,) = spans.spans()
    assert (span.trace_id, span.parent_id, span.name) == (TRACE_ID, PRODUCER, f"forward {topic}")
    assert (span.attributes["kafka_mesh.record_rule"], span.attributes["kafka_mesh.source.offset"]) == ("m", 0)
    copies = [dict(copy.headers).get("traceparent") for copy in c2.read(topic)]
    assert copies == [f"00-{TRACE_ID}-{span.span_id}-01".encode(), parents[1].encode(), None]
