"""What became of each record is written to a topic and a log file, and not in the way of the work, unless asked to."""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from services.sidecar.telemetry import metrics
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.test_streaming_produce import Stream
from tests.integration.sidecar.world import WITHIN_SECONDS, Json, Kafka, SidecarWorld, started

TRACE = "0af7651916cd43dd8448eb211c80319c"


@dataclass(frozen=True)
class Audited:
    """A sidecar that audits, and where."""

    world: SidecarWorld
    topic: str
    file: Path

    def of(self, topic: str, count: int, **members: object) -> list[Json]:
        """What the log file tells of a topic, once that is so much."""

        def found() -> list[Json]:
            events = map(json.loads, whole_lines(self.file))
            return [
                one
                for one in events
                if one["topic"] == topic and all(one[key] == value for key, value in members.items())
            ]

        wait_until(lambda: len(found()) >= count, f"{count} records of {topic} are audited", WITHIN_SECONDS)
        assert len(found()) == count
        return found()


def whole_lines(file: Path) -> list[str]:
    """The whole lines of a file. Its writer may be in the middle of the last line."""
    text = file.read_text() if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@pytest.fixture(scope="module")
def audited(kafka_c1: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    topic = f"audit-{uuid.uuid4().hex[:8]}"
    Kafka(kafka_c1.bootstrap).create(topic, partitions=1)
    file = tmp_path_factory.mktemp("audit") / "log" / "sidecar-audit.log"
    settings: Json = {"audit_target": "both", "audit_topic": topic, "audit_file": file, "max_record_bytes": 2_000}
    with started(kafka_c1.bootstrap, transactional_ids=f"{topic}-writer", **settings) as world:
        yield Audited(world, topic, file)


def test_each_record_that_is_written_or_not_is_audited_in_the_originals_words(
    audited: Audited, kafka: Kafka, orders: str
) -> None:
    answer = audited.world.http.post(
        f"/producers/{orders}",
        headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
        json={
            "records": [
                {"key": "alice", "value": "sesame", "partition": 1, "correlationId": "c-1", "traceabilityId": "t-1"},
                {"key": "bob", "value": "x" * 3_000, "correlationId": "c-2"},
            ]
        },
    )
    assert answer.status_code == 200
    written, failed = sorted(audited.of(orders, 2), key=lambda one: str(one["correlationId"]))
    assert uuid.UUID(written.pop("id")).version == 4
    assert abs(written.pop("timestamp") - time.time() * 1000) < 3_600_000
    assert written == {
        "serviceId": "sidecar-test",
        "auditType": "PRODUCER",
        "topic": orders,
        "partition": 1,
        "offset": 0,
        "correlationId": "c-1",
        "traceabilityId": "t-1",
        "key": "alice",
        "auditStatus": "SUCCESS",
        "stacktrace": None,
        "traceId": TRACE,
    }
    assert (failed["auditStatus"], failed["key"], failed["offset"]) == ("FAILURE", "bob", None)
    assert failed["stacktrace"].startswith("50002 ")
    assert "sesame" not in audited.file.read_text()


def test_the_topic_has_them_by_correlation_id_and_without_nulls(audited: Audited, kafka: Kafka, orders: str) -> None:
    audited.world.produce(orders, {"value": 1, "correlationId": "c-topic"})
    (line,) = audited.of(orders, 1)
    (record,) = wait_until(
        lambda: [one for one in all_of(kafka, audited.topic) if one.key() == b"c-topic"], "it is there"
    )
    assert json.loads(record.value() or b"") == {name: value for name, value in line.items() if value is not None}


def test_lines_that_are_streamed_are_audited(audited: Audited, orders: str) -> None:
    stream = Stream(audited.world, f"/producers/{orders}")
    stream.send({"value": 1}, {"value": 2})
    stream.end()
    assert [stream.result()["line"], stream.result()["line"]] == [1, 2]
    stream.close()
    assert {one["auditStatus"] for one in audited.of(orders, 2)} == {"SUCCESS"}


def test_a_transaction_is_audited_once_even_if_its_request_comes_again(audited: Audited, orders: str) -> None:
    body = {"topics": [{"topic": orders, "records": [{"key": "a", "value": 1}, {"key": "b", "value": 2}]}]}
    for replayed in (None, "true"):
        answer = audited.world.http.post("/transactions", json=body, headers={"Idempotency-Key": orders})
        assert (answer.status_code, answer.headers.get("Idempotency-Replayed")) == (200, replayed), answer.text
    assert [one["key"] for one in audited.of(orders, 2)] == ["a", "b"]


def test_records_of_a_topic_that_is_not_there_are_audited(audited: Audited) -> None:
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    assert audited.world.produce(missing, {"key": "k", "value": 1}).status_code == 404
    (event,) = audited.of(missing, 1)
    assert (event["auditStatus"], event["key"], event["partition"]) == ("FAILURE", "k", None)
    assert event["stacktrace"].startswith("40401 ")


def test_what_a_backend_reads_and_commits_is_audited(audited: Audited, kafka: Kafka, orders: str) -> None:
    headers = [("X-Correlation-Id", b"c-9"), ("X-Traceability-Id", b"t-9")]
    kafka.write(orders, {"key": b"alice", "value": b"1", "partition": 0, "headers": headers})
    instance = audited.world.create(f"{orders}-group", "c1", valueFormat="json")
    instance.assign({"topic": orders, "partition": 0})
    instance.read_all(1)
    (event,) = audited.of(orders, 1)
    assert (event["auditType"], event["auditStatus"], event["offset"]) == ("ACTIVE_CONSUMER", "SUCCESS", 0)
    assert (event["key"], event["correlationId"], event["traceabilityId"]) == ("alice", "c-9", "t-9")
    assert instance.commit().status_code == 200
    _, commit = audited.of(orders, 2)
    assert (commit["auditType"], commit["auditStatus"], commit["offset"]) == ("ACTIVE_CONSUMER", "SUCCESS", 0)
    assert (commit["key"], commit["correlationId"]) == (None, None)
    missing = {"topic": f"{orders}-not", "partition": 0, "offset": 7}
    assert instance.commit(missing).status_code == 400
    (refused,) = audited.of(f"{orders}-not", 1)
    assert (refused["auditStatus"], refused["offset"]) == ("FAILURE", 7)
    assert refused["stacktrace"].startswith("ERR12207 ")


def test_records_of_a_stream_are_audited(audited: Audited, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, {"value": b"1", "partition": 0}, {"value": b"2", "partition": 0})
    instance = audited.world.create(f"{orders}-group", "c1")
    instance.assign({"topic": orders, "partition": 0})
    with audited.world.http.stream(
        "GET", f"{instance.path}/records", headers={"Accept": "application/x-ndjson"}
    ) as answer:
        lines = answer.iter_lines()
        assert len([line for line in (next(lines), next(lines)) if line]) == 2
        assert [one["offset"] for one in audited.of(orders, 2)] == [0, 1]


def test_a_backend_says_what_became_of_its_records(audited: Audited, orders: str) -> None:
    place = {"topic": orders, "partition": 0}
    answer = audited.world.http.post(
        "/consumers/active/audit",
        json=[
            {
                "record": {
                    **place,
                    "offset": 7,
                    "key": "alice",
                    "value": "sesame",
                    "headers": {"x-correlation-id": "h"},
                },
                "processed": True,
                "correlationId": "from the result",
                "traceabilityId": "t",
            },
            {"consumerRecord": {**place, "offset": 8}, "processed": False, "stacktrace": "boom", "key": "bob"},
        ],
    )
    assert answer.status_code == 200
    done, failed = answer.json()
    assert (done["correlationId"], done["traceabilityId"], done["auditStatus"]) == ("h", "t", "SUCCESS")
    assert (failed["key"], failed["stacktrace"], failed["auditStatus"]) == ("bob", "boom", "FAILURE")
    assert {one["auditType"] for one in (done, failed)} == {"ACTIVE_CONSUMER"}
    lines = audited.of(orders, 2)
    assert [{name: value for name, value in one.items() if value is not None} for one in lines] == [done, failed]


def test_a_full_audit_trail_holds_up_the_work_where_nothing_may_be_lost(kafka: Kafka, orders: str) -> None:
    audit = f"{orders}-audit"
    settings: Json = {"audit_target": "topic", "audit_topic": audit, "audit_on_overflow": "block", "health_json": True}
    with started(kafka.bootstrap, audit_max_queued_records=1, queue_timeout_ms=100, **settings) as world:
        instance = world.create(f"{orders}-group", "c1")
        instance.assign({"topic": orders, "partition": 0}, {"topic": orders, "partition": 1})
        answers: list[Json] = []

        def turned_away() -> bool:
            answer = world.produce(orders, {"value": 1})
            answers.append(answer.json())
            return answer.status_code == 503

        wait_until(turned_away, "there is no room for audit any more", WITHIN_SECONDS)
        assert "audit (topic) is full" in answers[-1]["offsets"][0]["error"]
        readiness = world.http.get("/health/readiness")
        assert readiness.status_code == 400
        assert readiness.json()["checks"]["audit"].startswith("audit (topic) is full (1 records")
        assert instance.read(timeout=100) == []
        result = {"record": {"topic": orders, "partition": 0, "offset": 0}, "processed": True}
        refused = world.http.post("/consumers/active/audit", json=[result])
        assert (refused.status_code, refused.json()["code"]) == (503, "ERR12970")
        kafka.create(audit, partitions=1)
        wait_until(lambda: world.http.get("/health/readiness").status_code == 200, "audit goes on", WITHIN_SECONDS)
        written = len(answers) - 1
        assert len(instance.read_all(written)) == written
    events = [json.loads(one.value() or b"") for one in all_of(kafka, audit)]
    by_type = [one["auditType"] for one in events]
    assert (by_type.count("PRODUCER"), by_type.count("ACTIVE_CONSUMER")) == (written, written)


def test_audit_that_may_be_lost_holds_up_nothing(kafka: Kafka, orders: str) -> None:
    lost = metrics.lost_audits.labels("topic")
    before = lost._value.get()
    settings: Json = {"audit_target": "topic", "audit_topic": f"{orders}-nowhere", "audit_retry_ms": 200}
    with started(kafka.bootstrap, audit_max_queued_records=1, **settings) as world:
        for _ in range(5):
            assert world.produce(orders, {"value": 1}).status_code == 200
        assert world.http.get("/health/readiness").status_code == 200
    assert lost._value.get() - before == 5


def all_of(kafka: Kafka, topic: str) -> list[Message]:
    """What is in a topic of one partition now."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "unused"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_SECONDS)
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer.consume(end, timeout=WITHIN_SECONDS) if end else []
    finally:
        consumer.close()
