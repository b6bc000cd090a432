"""Producing over HTTP; what is in Kafka is checked with a plain client."""

import base64
import uuid

import pytest

from services.sidecar.telemetry import metrics
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import NOWHERE, Kafka, SidecarWorld, started, value_of

HASTY: dict[str, int] = {"unknown_topic_timeout_ms": 100, "drain_timeout_ms": 500}
"""For sidecars without Kafka: they have nothing to wait for."""


def test_a_record_arrives_with_all_its_members(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    record = {
        "key": "bob",
        "value": "v",
        "partition": 1,
        "timestamp": 1700000000000,
        "traceabilityId": "t-1",
        "correlationId": "c-1",
        "headers": {"source": "web", "X-Correlation-Id": "from-headers"},
    }
    answer = sidecar.produce(orders, record, keyFormat="STRING", valueFormat="STRING")
    assert (answer.status_code, answer.json()) == (
        200,
        {"offsets": [{"partition": 1, "offset": 0}], "requestStatus": "OK"},
    )
    (found,) = kafka.read(orders, 1)
    assert (found.partition, found.key, found.value, found.timestamp) == (1, b"bob", b"v", 1700000000000)
    assert found.headers == [("X-Traceability-Id", b"t-1"), ("X-Correlation-Id", b"c-1"), ("source", b"web")]


def test_records_take_the_ids_and_the_trace_of_their_request(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    of_request = {"X-Correlation-Id": "c", "X-Traceability-Id": "t", "traceparent": trace, "tracestate": "vendor=1"}
    own = [{"key": "traceparent", "value": "b3du"}, {"key": "h", "value": "AP8="}, {"key": "h", "value": "AA=="}]
    records = [{"partition": 0}, {"partition": 1, "correlationId": "mine", "headers": own}]
    answer = sidecar.http.post(f"/producers/{orders}", json={"records": records}, headers=of_request)
    assert answer.status_code == 200
    first, second = kafka.read(orders, 2)
    assert first.headers == [
        ("X-Traceability-Id", b"t"),
        ("X-Correlation-Id", b"c"),
        ("traceparent", trace.encode()),
        ("tracestate", b"vendor=1"),
    ]
    assert second.headers == [
        ("X-Traceability-Id", b"t"),
        ("X-Correlation-Id", b"mine"),
        ("traceparent", b"own"),
        ("h", b"\x00\xff"),
        ("h", b"\x00"),
    ]


def test_an_unknown_topic_is_told_and_one_that_appears_is_written_to(sidecar: SidecarWorld, kafka: Kafka) -> None:
    topic = f"appears-{uuid.uuid4().hex[:8]}"
    answer = sidecar.produce(topic, {"value": 1})
    assert (answer.status_code, answer.json()) == (
        404,
        {"offsets": [{"errorCode": 40401, "error": f"Topic {topic} does not exist"}], "requestStatus": "NOT_FOUND"},
    )
    kafka.create(topic)
    assert sidecar.produce(topic, {"value": 1}).status_code == 200


def test_batches_are_packed_as_the_settings_say(kafka: Kafka, orders: str) -> None:
    with started(kafka.bootstrap, compression_type="lz4", batch_bytes=10_000, linger_ms=5) as sidecar:
        answer = sidecar.produce(orders, *({"value": "x" * 1000, "partition": 0} for _ in range(100)))
    assert [one["offset"] for one in answer.json()["offsets"]] == list(range(100))
    assert len(kafka.read(orders, 100)) == 100


def test_keys_go_where_java_clients_put_them(sidecar: SidecarWorld, orders: str) -> None:
    """Partitions as recorded from the original, a Java program, on a topic with two of them."""
    strings = sidecar.produce(orders, {"key": "alice", "value": 1}, {"key": "gone"}).json()
    jsons = sidecar.produce(orders, {"key": {"k": 1}, "value": 1}, {"key": "s", "value": 7}, keyFormat="json").json()
    binaries = sidecar.produce(orders, {"key": "awA=", "value": 1}, keyFormat="binary").json()
    partitions = [one["partition"] for answer in (strings, jsons, binaries) for one in answer["offsets"]]
    assert partitions == [1, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("format_", "value", "stored"),
    [
        ("BINARY", base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        (0, "", b""),
        ("json", {"a": [1, 2.5, None, "x"]}, b'{"a":[1,2.5,null,"x"]}'),
        (1, 123456789012345678901234567890, b"123456789012345678901234567890"),
        ("String", "grüße", "grüße".encode()),
        (5, "", b""),
        (5, None, None),
    ],
)
def test_values_are_stored_as_their_format_says(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, format_: object, value: object, stored: bytes | None
) -> None:
    assert sidecar.produce(orders, {"value": value}, valueFormat=format_).status_code == 200
    (found,) = kafka.read(orders, 1)
    assert (found.key, found.value) == (None, stored)


def test_one_record_for_an_unknown_partition_does_not_touch_the_others(
    sidecar: SidecarWorld, kafka: Kafka, orders: str
) -> None:
    records = [{"key": "a", "value": str(partition), "partition": partition} for partition in (0, 77, 0)]
    answer = sidecar.produce(orders, *records)
    assert answer.status_code == 200
    first, second, third = answer.json()["offsets"]
    assert (first, second["errorCode"], third) == ({"partition": 0, "offset": 0}, 40402, {"partition": 0, "offset": 1})
    assert [record.value for record in kafka.read(orders, 2)] == [b'"0"', b'"0"']


def test_a_batch_with_one_bad_record_sends_nothing(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    answer = sidecar.produce(orders, {"value": "good"}, {"value": 5}, valueFormat="string")
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12206")
    assert kafka.read(orders, 0) == []


def test_a_large_batch_keeps_its_order(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    count = 5000
    answer = sidecar.produce(orders, *({"value": number, "partition": 0} for number in range(count)))
    assert [one["offset"] for one in answer.json()["offsets"]] == list(range(count))
    assert [record.value for record in kafka.read(orders, count)] == [str(number).encode() for number in range(count)]


def test_an_illegal_topic_name_is_told_at_once(sidecar: SidecarWorld) -> None:
    answer = sidecar.produce("bad%20topic", {"value": 1})
    assert answer.status_code == 404
    assert answer.json()["offsets"] == [{"errorCode": 40401, "error": "Invalid topics: [bad topic]"}]


def test_a_record_over_the_bound_fails_alone(kafka: Kafka, orders: str) -> None:
    with started(kafka.bootstrap, max_record_bytes=2000) as sidecar:
        small, large = {"value": "x"}, {"value": "x" * 3000}
        outcomes = sidecar.produce(orders, small, large, small).json()["offsets"]
    assert [one.get("errorCode") for one in outcomes] == [None, 50002, None]


def test_no_records_is_fine(sidecar: SidecarWorld, orders: str) -> None:
    answer = sidecar.produce(orders)
    assert (answer.status_code, answer.json()) == (200, {"offsets": [], "requestStatus": "OK"})


def test_without_kafka_the_answer_says_try_again_in_bounded_time(orders: str) -> None:
    with started(NOWHERE, **HASTY, delivery_timeout_ms=1000, health_timeout_ms=500) as sidecar:
        answer = sidecar.produce(orders, {"value": 1}, {"value": 2})
        assert (answer.status_code, answer.json()["requestStatus"]) == (503, "SERVICE_UNAVAILABLE")
        assert [one["errorCode"] for one in answer.json()["offsets"]] == [50003, 50003]
        assert sidecar.http.get("/health/liveness").text == "OK"
        readiness = sidecar.http.get("/health/readiness")
        assert (readiness.status_code, readiness.text) == (400, "ERROR")


def test_a_full_queue_turns_requests_away(orders: str) -> None:
    with started(NOWHERE, **HASTY, max_queued_records=1, queue_timeout_ms=100) as sidecar:
        waiting = sidecar.aside.submit(sidecar.produce, orders, {"value": 0})
        wait_until(lambda: value_of(metrics.queued_records), "the first record takes all the room")
        refused = sidecar.produce(orders, {"value": 1})
        assert "queue is full" in refused.json()["offsets"][0]["error"]
    assert (refused.status_code, waiting.result().status_code) == (503, 503)


def test_what_was_accepted_is_delivered_before_the_sidecar_ends(kafka: Kafka, orders: str) -> None:
    count = 100  # so many linger; few would be sent at once
    with started(kafka.bootstrap, linger_ms=5_000, drain_timeout_ms=60_000) as sidecar:
        request = sidecar.aside.submit(sidecar.produce, orders, *({"value": number} for number in range(count)))
        wait_until(lambda: value_of(metrics.queued_records), "the records are on their way")
    assert request.result().json()["requestStatus"] == "OK"
    assert len(kafka.read(orders, count)) == count


def test_without_kafka_an_open_request_is_answered_when_the_sidecar_ends(orders: str) -> None:
    with started(NOWHERE, **HASTY, delivery_timeout_ms=300_000) as sidecar:
        request = sidecar.aside.submit(sidecar.produce, orders, {"value": 1})
        wait_until(lambda: value_of(metrics.queued_records), "the record is on its way")
    assert request.result().status_code == 503


def test_health_is_one_word(sidecar: SidecarWorld) -> None:
    for path in ("/health", "/health/liveness", "/health/readiness", "/health/com.example.orders-1.0.0"):
        answer = sidecar.http.get(path)
        assert (answer.status_code, answer.text) == (200, "OK")


def test_health_tells_each_check_when_asked_to(kafka: Kafka) -> None:
    with started(kafka.bootstrap, health_json=True) as sidecar:
        assert sidecar.http.get("/health").json() == {
            "status": "OK",
            "checks": {"producer": "OK", "clients": "OK", "kafka": "OK", "instances": "OK"},
        }
