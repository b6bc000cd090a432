"""Failures after the answer: counted, logged, and written to a topic if there is one."""

import asyncio
from typing import Any

import orjson
import structlog
from structlog.testing import capture_logs

from services.sidecar import metrics
from services.sidecar.producing.auditing import MAX_LINES, Audit
from services.sidecar.producing.producer import NotAccepted, RecordProducer
from services.sidecar.producing.records import Delivered, Delivery, DeliveryError, Failed, Outgoing

LOST = Failed(DeliveryError.RETRIABLE, "Local: Message timed out")
RECORD = Outgoing(b"alice", b"secret", 1, 0, [("X-Traceability-Id", b"t"), ("X-Correlation-Id", b"c")])


class TakingProducer(RecordProducer):
    """Takes audit records, or refuses them, without Kafka."""

    def __init__(self, refusal: Failed | None = None) -> None:
        self.refusal = refusal
        self.taken: list[tuple[str, Outgoing]] = []

    async def accept(self, topic: str, records: list[Outgoing]) -> "asyncio.Future[list[Delivery]]":
        if self.refusal is not None:
            raise NotAccepted(self.refusal)
        self.taken += [(topic, record) for record in records]
        done: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        done.set_result([Delivered(0, 0)] * len(records))
        return done


async def audited(producer: TakingProducer, outcomes: list[Delivery], topic: str = "audit") -> list[Any]:
    """The log lines of a request with these outcomes."""
    audit = Audit(producer, service="sidecar-1", topic=topic)
    done: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
    audit.follow("apples", [RECORD] * len(outcomes), done)
    with capture_logs(processors=[structlog.stdlib.add_log_level]) as logged:
        done.set_result(outcomes)
        await asyncio.sleep(0)
        await audit.stop(10)
    return logged


def value_of(counter: Any) -> float:
    return float(counter._value.get())


async def test_a_failure_has_the_shape_of_the_originals_audit_and_no_payload() -> None:
    producer = TakingProducer()
    before = value_of(metrics.async_failures)
    (line,) = await audited(producer, [Delivered(0, 1), LOST])
    ((topic, record),) = producer.taken
    event = orjson.loads(record.value or b"")
    assert (topic, record.key) == ("audit", b"c")
    assert {name: event[name] for name in event.keys() - {"id", "timestamp"}} == {
        "serviceId": "sidecar-1",
        "auditType": "PRODUCER",
        "topic": "apples",
        "partition": 1,
        "correlationId": "c",
        "traceabilityId": "t",
        "key": "alice",
        "auditStatus": "FAILURE",
        "stacktrace": "50003 Local: Message timed out",
    }
    assert (line["auditStatus"], line["topic"]) == ("FAILURE", "apples")
    assert "secret" not in str(line)
    assert value_of(metrics.async_failures) - before == 1


async def test_what_arrived_is_not_worth_a_word() -> None:
    producer = TakingProducer()
    assert await audited(producer, [Delivered(0, 1)]) == []
    assert producer.taken == []


async def test_without_a_topic_the_log_is_all() -> None:
    producer = TakingProducer()
    assert len(await audited(producer, [LOST], topic="")) == 1
    assert producer.taken == []


async def test_a_request_that_failed_as_a_whole_does_not_flood_the_log() -> None:
    lines = await audited(TakingProducer(), [LOST] * 1000)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1]["records"] == 900


async def test_audit_records_that_are_not_taken_are_counted() -> None:
    before = value_of(metrics.lost_audits.labels("topic"))
    await audited(TakingProducer(LOST), [LOST, LOST])
    assert value_of(metrics.lost_audits.labels("topic")) - before == 2
