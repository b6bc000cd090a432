"""The calls on dead letters: one batch for the backend, reads that are committed once they were answered, a look."""

import base64
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from services.sidecar.api.dead_letters import ACTIVE_INSTANCE
from services.sidecar.consuming import partition_reader
from services.sidecar.records import Reason
from tests.fixtures.backend import Backend, answer_of, hang
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.dead_letter_world import FIRST_TIME, fail
from tests.integration.sidecar.world import NOWHERE, Json, Kafka, SidecarWorld, started


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend().running() as backend:
        yield backend


@pytest.fixture(scope="module")
def orders(kafka_c1: KafkaCluster) -> str:
    """What the reactive consumer of this sidecar has."""
    topic = f"dead-orders-{uuid.uuid4().hex[:8]}"
    for name in (topic, f"{topic}.dlq"):
        Kafka(kafka_c1.bootstrap).create(name, partitions=1)
    return topic


@pytest.fixture(scope="module")
def world(kafka_c1: KafkaCluster, backend: Backend, orders: str) -> Iterator[SidecarWorld]:
    settings: dict[str, Any] = {
        "reactive_topics": f"{orders},{orders}-without-dead-letters",
        "reactive_enabled": False,
        "backend_url": backend.host_url,
        "backend_retry_delay_ms": 1,
        "max_call_ms": 16_000,
        "max_read_ms": 12_000,
        "stream_heartbeat_ms": 10_000,
        "stream_idle_timeout_ms": 10_000,
        "admin_listen": None,
    }
    with started(kafka_c1.bootstrap, **settings) as world:
        yield world


@pytest.fixture(autouse=True)
def forgets(backend: Backend) -> Iterator[None]:
    yield
    backend.cure()
    backend.calls.clear()


@pytest.fixture
def group(kafka: Kafka, orders: str, unique_name: Any) -> str:
    """Begins after what is among the dead letters already."""
    name: str = unique_name("group")
    kafka.commit(name, f"{orders}.dlq", kafka.end(f"{orders}.dlq"))
    return name


def replayed(world: SidecarWorld, group: str, **query: str | int) -> Json:
    answer = world.http.get("/consumers/deadLetter/reactive", params={"group": group, **query})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def read(world: SidecarWorld, group: str, **query: str | int) -> list[Json]:
    answer = world.http.get("/consumers/deadLetter/active", params={"group": group, "timeout": 10_000, **query})
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()
    return found


# one batch for the backend


def test_a_batch_goes_to_the_backend_and_is_committed(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str, backend: Backend
) -> None:
    end = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2"})
    found = replayed(world, group, topic=orders)
    assert found["description"] == f"Dead letter queue process successful to partition:0| offset:{end + 1}"
    assert (found["group"], found["records"], found["topics"]) == (group, 2, [f"{orders}.dlq"])
    assert found["instance"].startswith("Reactive-Replay-")
    assert [(one["topic"], one["value"]) for one in backend.records] == [(f"{orders}.dlq", 1), (f"{orders}.dlq", 2)]
    assert kafka.committed(group, f"{orders}.dlq", 0) == end + 2


def test_no_dead_letters_are_no_error_be_it_that_there_is_no_such_topic(world: SidecarWorld, group: str) -> None:
    found = replayed(world, group)  # all that are configured
    assert found["records"] == 0
    assert found["description"] == "Dead letter queue process successful to end, no records processed"
    assert len(found["topics"]) == 2


def test_what_fails_again_is_a_dead_letter_again_unless_it_was_the_last_retry(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str, backend: Backend
) -> None:
    end = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"key": b"a", "value": b'"bad"'})
    backend.always(answer_of(lambda _: {"processed": False, "stacktrace": "still"}))
    assert replayed(world, group)["records"] == 1
    assert kafka.end(f"{orders}.dlq") == end + 2
    assert replayed(world, group, lastretry="true")["records"] == 1
    assert kafka.end(f"{orders}.dlq") == end + 2
    assert replayed(world, group)["records"] == 0


def test_a_backend_that_does_not_answer_gets_them_again(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str, backend: Backend
) -> None:
    end = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"value": b"1"})
    backend.always(hang)
    found = replayed(world, group, timeout=12_000)  # which leaves the backend a moment
    assert found["description"] == (
        f"Pulled records from DLQ , processing error, rolled back to partition:0| offset:{end}"
    )
    backend.cure()
    assert replayed(world, group)["records"] == 1


def test_a_topic_that_is_not_configured_is_refused_in_the_originals_words(world: SidecarWorld, group: str) -> None:
    answer = world.http.get("/consumers/deadLetter/reactive", params={"group": group, "topic": "strange"})
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR30001")
    assert "doesn't march the topics in the kafka-comsumer.yml" in answer.json()["description"]


def test_a_group_that_has_members_is_refused_before_anything_is_sent(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str, backend: Backend
) -> None:
    fail(kafka, orders, {"value": b"1"})
    assert read(world, group, topic=orders)
    answer = world.http.get("/consumers/deadLetter/reactive", params={"group": group})
    assert (answer.status_code, answer.json()["code"]) == (409, "ERR12904")
    assert not backend.calls


# reads of a backend that reads for itself


def test_what_was_read_is_committed_once_it_is_answered(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    end = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"key": b"a", "value": b'{"n":1}'})
    (record,) = read(world, group, topic=orders)
    assert (record["topic"], record["key"], record["value"]) == (f"{orders}.dlq", "a", {"n": 1})
    assert record["headers"]["dlq.topic"] == orders
    wait_until(lambda: kafka.committed(group, f"{orders}.dlq", 0) == end + 1, "it is committed")
    assert read(world, group, topic=orders, timeout=100) == []


def test_a_read_that_only_looks_gets_it_again(world: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    end = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"value": b"1"})
    assert [one["offset"] for one in read(world, group, topic=orders, commit="false")] == [end]
    assert kafka.committed(group, f"{orders}.dlq", 0) == end
    assert [one["offset"] for one in read(world, group, topic=orders)] == [end]


def test_formats_are_the_sidecars_unless_the_call_says_otherwise(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    fail(kafka, orders, {"value": b"{"})
    query = {"group": group, "topic": orders, "timeout": "10000"}
    for format_, code in (({}, "ERR12205"), ({"format": "avro"}, "ERR12204")):
        answer = world.http.get("/consumers/deadLetter/active", params={**query, **format_})
        assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert [one["value"] for one in read(world, group, topic=orders, format="string")] == ["{"]


def test_the_reader_is_an_instance_of_the_originals_name(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    read(world, group, topic=orders, timeout=10)
    assert f"{group}.{ACTIVE_INSTANCE}" in {one["name"] for one in world.http.get("/adm/kafka/consumers").json()}


# what a backend puts there itself


def test_a_backend_puts_records_among_the_dead_letters(world: SidecarWorld, kafka: Kafka, orders: str) -> None:
    end = kafka.end(f"{orders}.dlq")
    record = {"topic": orders, "partition": 0, "offset": 1, "value": {"n": 1}, "headers": {"h": "x"}, "key": "other"}
    results = [
        {
            "record": record,
            "processed": False,
            "stacktrace": "boom",
            "correlationId": "c",
            "traceabilityId": "t",
            "key": "bob",
        },
        {"consumerRecord": {**record, "value": None}, "processed": False},
    ]
    answer = world.http.post("/consumers/deadLetter/active", json=results)
    assert answer.status_code == 200, answer.text
    first, second = answer.json()
    assert (first["topic"], first["partitionId"], first["offset"]) == (f"{orders}.dlq", 0, end)
    assert (first["serializeKeySize"], first["serializeValueSize"], second["serializeValueSize"]) == (3, 7, -1)
    letters = kafka.read(f"{orders}.dlq", None)[-2:]
    assert [(one.key, one.value) for one in letters] == [(b"bob", b'{"n":1}'), (b"other", None)]
    headers = dict(letters[0].headers)
    assert [headers[name] for name in ("X-Correlation-Id", "X-Traceability-Id", "StackTrace", "h")] == [
        b"c", b"t", b"boom", b"x",
    ]  # fmt: skip
    assert headers["dlq.offset"] == b"1"


def test_dead_letters_that_cannot_be_written_are_named(world: SidecarWorld, orders: str) -> None:
    record = {"topic": f"{orders}-missing", "partition": 0, "offset": 1}
    answer = world.http.post("/consumers/deadLetter/active", json=[{"record": record, "processed": False}])
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR30003")
    assert answer.json()["description"].startswith("1 of 1 were not written, by their index: 0: ")


# a look


def test_operators_look_at_dead_letters_and_nothing_moves(world: SidecarWorld, kafka: Kafka, orders: str) -> None:
    end = kafka.end(f"{orders}.dlq")
    fail(
        kafka,
        orders,
        {"key": b"a", "value": b"5", "headers": [("h", b"\xff")]},
        {"key": b"b", "value": b"{", "reason": Reason.DESERIALIZATION, "offset": 7},
    )
    (topic,) = (one for one in world.http.get("/adm/kafka/deadletters").json() if one["source"] == orders)
    assert topic["partitions"] == [{"partition": 0, "first": 0, "next": end + 2}]
    query: dict[str, str | int] = {"topic": orders, "offset": end, "raw": "true"}
    readable, broken = world.http.get("/adm/kafka/deadletters", params=query).json()
    assert (readable["value"], readable["fits"], broken["fits"]) == (5, True, False)
    assert base64.b64decode(broken["raw"]["value"]) == b"{"
    assert {"key": "h", "value": base64.b64encode(b"\xff").decode()} in readable["headers"]
    assert broken["origin"] == {
        "topic": orders, "partition": 0, "offset": 7, "timestamp": FIRST_TIME + 1, "group": "shop",
        "reason": "deserialization", "attempts": 4, "firstFailure": FIRST_TIME, "stacktrace": "boom",
    }  # fmt: skip
    one = world.http.get("/adm/kafka/deadletters", params={**query, "limit": 1}).json()
    assert [found["offset"] for found in one] == [end]
    assert world.http.get("/adm/kafka/deadletters", params={"topic": orders, "offset": end + 9}).json() == []
    nowheres: list[dict[str, str | int]] = [{"topic": f"{orders}-missing"}, {"topic": orders, "partition": 9}]
    for nowhere in nowheres:
        missing = world.http.get("/adm/kafka/deadletters", params=nowhere)
        assert (missing.status_code, missing.json()["code"]) == (404, "ERR12960")


def test_while_the_registry_is_away_nothing_is_skipped(kafka: Kafka, orders: str, group: str) -> None:
    fail(kafka, orders, {"value": b"\0\0\0\0\1\2"})
    away = {
        "schema_registry_url": f"http://{NOWHERE}",
        "schema_registry_timeout_ms": 200,
        "consumer_value_format": "avro",
    }
    with started(kafka.bootstrap, **away) as world:
        query = {"group": group, "topic": orders, "timeout": "10000"}
        for _ in range(2):
            answer = world.http.get("/consumers/deadLetter/active", params=query)
            assert (answer.status_code, answer.json()["code"]) == (503, "ERR12920")
        (letter,) = world.http.get("/adm/kafka/deadletters", params={"topic": orders}).json()[-1:]
        assert letter["fits"] is False


def test_while_kafka_is_away_calls_say_so(orders: str) -> None:
    with mock.patch.object(partition_reader, "ASK_SECONDS", 0.1), started(NOWHERE, reactive_topics=orders) as world:
        for path in ("/consumers/deadLetter/reactive", "/adm/kafka/deadletters"):
            answer = world.http.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "ERR12961")


def test_parts_that_are_off_say_so(kafka: Kafka, orders: str) -> None:
    with started(kafka.bootstrap, producer_enabled=False, consumers_enabled=False) as idle:
        codes = [
            idle.http.get("/consumers/deadLetter/reactive").json()["code"],
            idle.http.post("/consumers/deadLetter/active", json=[]).json()["code"],
            idle.http.get("/consumers/deadLetter/active").json()["code"],
        ]
    with started(kafka.bootstrap) as bare:
        codes += [
            bare.http.get("/consumers/deadLetter/reactive").json()["code"],
            bare.http.get("/consumers/deadLetter/active").json()["code"],
        ]
    assert codes == ["ERR12216", "ERR12216", "ERR11019", "ERR11019", "ERR30001"]
