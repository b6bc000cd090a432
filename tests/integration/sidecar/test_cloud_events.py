"""CloudEvents over a live sidecar and a real Kafka; a plain client and the SDK of the project see the same."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings import http as over_http
from cloudevents.core.bindings import kafka as in_kafka
from cloudevents.core.v1.event import CloudEvent

from tests.fixtures.clusters import KafkaCluster
from tests.integration.sidecar.world import Instance, Json, Kafka, PlainRecord, SidecarWorld, started

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON = 1_767_355_200_000
PLACED: Json = {
    "specversion": "1.0",
    "id": "A234",
    "source": "/shop",
    "type": "order.placed",
    "time": "2026-01-02T03:04:05.123456789Z",
    "partitionkey": "alice",
}


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    with started(kafka_c1.bootstrap, name="sidecar-of-events") as world:
        yield world


def send(sidecar: SidecarWorld, topic: str, event: object, kind: str = STRUCTURED, **query: str) -> httpx.Response:
    return sidecar.http.post(f"/producers/{topic}", json=event, headers={"Content-Type": kind}, params=query)


def read_events(instance: Instance, count: int) -> list[Json]:
    """As many events as the topic has; by their ids."""
    events: list[Json] = []
    while len(events) < count:
        answer = instance.http.get(f"{instance.path}/records", headers={"Accept": BATCH})
        assert (answer.status_code, answer.headers["content-type"]) == (200, BATCH), answer.text
        events += answer.json()
    return sorted(events, key=lambda event: str(event["id"]))


def events_of(kafka: Kafka, topic: str, count: int) -> list[CloudEvent]:
    """What the SDK finds in a topic, by their ids."""

    def event(record: PlainRecord) -> CloudEvent:
        message = in_kafka.KafkaMessage(dict(record.headers), record.key, record.value or b"")
        found = in_kafka.from_kafka_event(message)
        assert isinstance(found, CloudEvent)
        return found

    return sorted(map(event, kafka.read(topic, count)), key=lambda found: found.get_id())


def test_a_structured_event_is_a_record_in_binary_mode(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    answer = send(sidecar, orders, {**PLACED, "data": {"n": 1}})
    [record] = kafka.read(orders, 1)
    assert answer.status_code == 200
    assert answer.json() == {
        "offsets": [{"partition": record.partition, "offset": record.offset}],
        "requestStatus": "OK",
    }
    assert (record.key, record.value) == (b"alice", b'{"n":1}')
    headers = dict(record.headers)
    assert headers.pop("X-Correlation-Id")
    assert headers == {
        **{f"ce_{name}": value.encode() for name, value in PLACED.items()},
        "content-type": b"application/json",
    }


def test_a_structured_event_stays_whole_when_asked_for(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    assert send(sidecar, orders, {**PLACED, "data": "x"}, contentMode="structured").status_code == 200
    [record] = kafka.read(orders, 1)
    assert record.key == b"alice"
    assert dict(record.headers)["content-type"] == b"application/cloudevents+json; charset=UTF-8"
    assert httpx.Response(200, content=record.value).json() == {
        **PLACED,
        "datacontenttype": "application/json",
        "data": "x",
    }


def test_a_batch_has_one_outcome_for_each_event_and_is_read_back_as_it_was(
    sidecar: SidecarWorld, kafka: Kafka, orders: str
) -> None:
    sent: list[Json] = [
        {**PLACED, "id": "1", "datacontenttype": "application/json", "data": {"n": 123456789012345678901234567890}},
        {**PLACED, "id": "2", "datacontenttype": "image/png", "data_base64": "iVBORw//"},
        {**PLACED, "id": "3", "datacontenttype": "text/plain", "data": "ü"},
        {**PLACED, "id": "4", "subject": "nothing"},
    ]
    answer = send(sidecar, orders, sent, BATCH)
    assert len(answer.json()["offsets"]) == 4
    read = [event.get_data() for event in events_of(kafka, orders, 4)]
    assert read == [sent[0]["data"], b"\x89PNG\x0f\xff", "ü", None]
    instance = sidecar.create(f"{orders}-readers", "batch")
    instance.subscribe(orders)
    assert read_events(instance, 4) == sent


def test_a_binary_event_reaches_kafka_byte_for_byte(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    """As the SDK writes it for HTTP, down to how it encodes what headers cannot hold."""
    attributes: dict[str, Any] = {**PLACED, "subject": "50 % “off”", "datacontenttype": "application/xml"}
    del attributes["time"]
    message = over_http.to_binary_event(CloudEvent(attributes, b'<a b="1" />'))
    answer = sidecar.http.post(f"/producers/{orders}", content=message.body, headers=message.headers)
    assert answer.status_code == 200, answer.text
    [event] = events_of(kafka, orders, 1)
    assert (event.get_subject(), event.get_datacontenttype()) == ("50 % “off”", "application/xml")
    assert kafka.read(orders, 1)[0].value == b'<a b="1" />'


def test_one_bad_event_sends_nothing_and_all_that_is_wrong_is_named(
    sidecar: SidecarWorld, kafka: Kafka, orders: str
) -> None:
    answer = send(sidecar, orders, [PLACED, {**PLACED, "time": "noon", "id": None}], BATCH)
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")
    assert [error["pointer"] for error in answer.json()["metadata"]["errors"]] == ["/1/id", "/1/time"]
    assert kafka.read(orders, 0) == []


def test_ids_and_trace_of_the_request_are_the_records_but_an_events_own_trace_wins(
    sidecar: SidecarWorld, kafka: Kafka, orders: str
) -> None:
    others = "00-11111111111111111111111111111111-1111111111111111-01"
    headers = {"X-Correlation-Id": "c", "X-Traceability-Id": "t", "traceparent": others, "Content-Type": BATCH}
    events = [{**PLACED, "partitionkey": "k"}, {**PLACED, "partitionkey": "k", "traceparent": PARENT}]
    assert sidecar.http.post(f"/producers/{orders}", json=events, headers=headers).status_code == 200
    [plain, traced] = [dict(record.headers) for record in kafka.read(orders, 2)]
    assert (plain["X-Correlation-Id"], plain["X-Traceability-Id"]) == (b"c", b"t")
    assert (plain["traceparent"], traced["traceparent"]) == (others.encode(), PARENT.encode())


def test_an_event_is_written_once_for_an_idempotency_key(sidecar: SidecarWorld, orders: str) -> None:
    def sent(event_id: str) -> httpx.Response:
        event = {"ce-specversion": "1.0", "ce-id": event_id, "ce-source": "/s", "ce-type": "t"}
        headers = {**event, "Idempotency-Key": orders, "Content-Type": "text/plain"}
        return sidecar.http.post(f"/producers/{orders}", content=b"same", headers=headers)

    first = sent("1")
    assert sent("1").json() == first.json()
    assert sent("2").status_code == 422
    instance = sidecar.create(f"{orders}-readers", "once")
    instance.subscribe(orders)
    assert [event["id"] for event in read_events(instance, 1)] == ["1"]


def test_what_others_wrote_is_read_as_events(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    """Events of the SDK in both modes, and records that are none, with their format's value and their place."""
    event = CloudEvent({**PLACED, "id": "A1", "time": datetime.now(UTC)}, {"n": 1})
    written: list[Json] = []
    for message in (in_kafka.to_binary_event(event), in_kafka.to_structured_event(event)):
        headers = {name: bytes(value) for name, value in message.headers.items()}
        written.append({"key": message.key, "value": message.value, "headers": headers, "partition": 0})
    bob = {"key": b"bob", "value": b'{"n":2}', "headers": {"source": b"web"}, "partition": 1, "timestamp": NOON}
    kafka.write(orders, *written, bob)
    instance = sidecar.create(f"{orders}-readers", "others", valueFormat="json")
    instance.subscribe(orders)
    [binary, structured, other] = read_events(instance, 3)
    assert binary["id"] == structured["id"] == "A1"
    assert binary["data"] == structured["data"] == {"n": 1}
    assert other == {
        "specversion": "1.0",
        "type": "kafka.mesh.record",
        "source": f"/topics/{orders}",
        "id": "partition:1/offset:0",
        "subject": "partition:1#0",
        "time": "2026-01-02T12:00:00.000Z",
        "partitionkey": "bob",
        "kafkaheadersource": "web",
        "datacontenttype": "application/json",
        "data": {"n": 2},
    }


def test_events_that_were_read_can_be_committed(sidecar: SidecarWorld, kafka: Kafka, orders: str) -> None:
    send(sidecar, orders, PLACED)
    [record] = kafka.read(orders, 1)
    instance = sidecar.create(f"{orders}-readers", "one")
    instance.subscribe(orders)
    read_events(instance, 1)
    assert instance.commit().status_code == 200
    assert kafka.committed(f"{orders}-readers", orders, record.partition) == 1
