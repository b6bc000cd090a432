"""The reactive consumer on a real Kafka, with a real backend: what is read is posted, and committed once it is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.fixtures.backend import Backend, answer_of, held, offsets_of, status
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.reactive_world import (
    hindrance,
    order,
    reading,
    settings,
    wait_for_commit,
    write,
)
from tests.integration.sidecar.world import Kafka, started


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def test_what_is_written_is_posted_in_the_originals_shape_and_committed(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    with reading(kafka, backend, orders, group):
        kafka.write(orders, {"key": b"alice", "value": b"1", "partition": 1, "headers": [("a", b"b")]})
        (record,) = backend.wait_for_records(1)
        assert (record["topic"], record["partition"], record["offset"]) == (orders, 1, 0)
        assert (record["key"], record["value"], record["headers"]["a"]) == ("alice", "1", "b")
        wait_for_commit(kafka, group, orders, 1, 1)
    (call,) = backend.calls
    assert call.path == "/kafka/records"
    assert call.headers["idempotency-key"] == f"{orders}-1-0-0"


def test_nothing_is_read_before_the_backend_says_that_it_is_ready(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    write(kafka, orders, 1)
    backend.stop()
    probed = {"health_downstream_enabled": True, "downstream_host": backend.host_url}
    with started(kafka.bootstrap, **settings(backend, orders, group, **probed)) as world:
        wait_until(lambda: "waits for its backend" in hindrance(world), "it says what it waits for")
        backend.start()
        backend.wait_for_records(1)
    assert backend.health_calls


def test_batches_are_bounded_in_records_and_a_record_larger_than_a_batch_goes_alone(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    sizes = (10, 10, 500, 10, 10, 10)
    kafka.write(orders, *({"value": b"x" * size, "partition": 0} for size in sizes))
    bounds = {"reactive_max_batch_records": 2, "reactive_max_batch_bytes": 100}
    with reading(kafka, backend, orders, group, **bounds):
        backend.wait_for_records(len(sizes))
    assert offsets_of(backend.calls) == [[0, 1], [2], [3, 4], [5]]


def test_a_slow_partition_holds_back_no_other(kafka: Kafka, backend: Backend, orders: str, group: str) -> None:
    release = threading.Event()
    backend.poison(lambda record: record["partition"] == 0, held(release))
    with reading(kafka, backend, orders, group, reactive_max_held_records=20, reactive_max_batch_records=5):
        write(kafka, orders, 50, partition=0)
        backend.wait_for_calls(1)
        write(kafka, orders, 50, partition=1)
        wait_for_commit(kafka, group, orders, 1, 50)
        assert [one for one in backend.records if one["partition"] == 0][5:] == []
        release.set()
        wait_for_commit(kafka, group, orders, 0, 50)
    for partition in (0, 1):
        found = [one["offset"] for one in backend.records if one["partition"] == partition]
        assert found == sorted(found)


def test_keys_of_one_partition_do_not_wait_for_each_other_and_each_keeps_its_order(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    release = threading.Event()
    backend.poison(lambda record: record["key"] == "slow", held(release))
    keys = ["slow", *(f"key-{number}" for number in range(40))]
    records = [{"key": key.encode(), "value": b"%d" % turn, "partition": 0} for turn in range(3) for key in keys]
    with reading(kafka, backend, orders, group, reactive_order_by_key=True):
        kafka.write(orders, *records)
        wait_until(lambda: sum(one["key"] != "slow" for one in backend.records) > 60, "other keys go on")
        assert kafka.committed(group, orders, 0) < 1  # the slow one is the first
        release.set()
        wait_for_commit(kafka, group, orders, 0, len(records))
    for key in keys:
        assert [one["value"] for one in backend.records if one["key"] == key] == ["0", "1", "2"]


def test_a_record_that_the_backend_gives_up_is_a_dead_letter_before_it_is_committed(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    kafka.create(f"{orders}.dlq")
    backend.always(answer_of(lambda record: {"status": "DEAD_LETTER"} if record["value"] == "1" else {}))
    with reading(kafka, backend, orders, group):
        write(kafka, orders, 3)
        wait_for_commit(kafka, group, orders, 0, 3)
        (letter,) = kafka.read(f"{orders}.dlq", 1)
        assert (letter.key, letter.value) == (b"k", b"1")


def test_a_backend_that_refuses_everything_does_not_drain_its_topic_into_dead_letters(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    kafka.create(f"{orders}.dlq", 1)
    backend.always(status(400))
    more = {"backend_circuit_refused": 5, "backend_circuit_pause_ms": 600_000, "backend_circuit_max_pause_ms": 600_000}
    more["drain_timeout_ms"] = 1_000  # it could not get rid of what it holds in any time
    with reading(kafka, backend, orders, group, **more) as world:
        write(kafka, orders, 50)
        wait_until(lambda: "refused 6 records in a row" in hindrance(world), "readiness tells it")
    assert len(kafka.read(f"{orders}.dlq", None)) <= 6


def test_nothing_is_committed_while_its_dead_letter_cannot_be_written(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    backend.always(answer_of(lambda record: {"status": "DEAD_LETTER"} if record["value"] == "1" else {}))
    more = {"unknown_topic_timeout_ms": 50, "dead_letter_create_topics": False}
    with reading(kafka, backend, orders, group, **more) as world:
        write(kafka, orders, 3)
        wait_until(lambda: f"{orders}.dlq" in hindrance(world), "readiness names the topic")
        assert kafka.committed(group, orders, 0) < 0
        kafka.create(f"{orders}.dlq")
        wait_for_commit(kafka, group, orders, 0, 3)
        assert len(kafka.read(f"{orders}.dlq", 1)) == 1


def test_a_reply_is_written_before_its_record_is_committed(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    kafka.create(f"{orders}-replies", 1)
    reply = {"topic": f"{orders}-replies", "valueFormat": "string", "records": [{"value": "done"}]}
    backend.always(answer_of(lambda _: {"produce": [reply]}))
    with reading(kafka, backend, orders, group):
        write(kafka, orders, 1)
        wait_for_commit(kafka, group, orders, 0, 1)
        assert [one.value for one in kafka.read(f"{orders}-replies", 1)] == [b"done"]


def test_a_record_that_does_not_fit_its_format_is_a_dead_letter_and_others_go_on(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    kafka.create(f"{orders}.dlq")
    with reading(kafka, backend, orders, group, value_format="json"):
        kafka.write(orders, *({"value": value, "partition": 0} for value in (b"1", b"{broken", b"3")))
        wait_for_commit(kafka, group, orders, 0, 3)
        (letter,) = kafka.read(f"{orders}.dlq", 1)
    assert letter.value == b"{broken"
    assert dict(letter.headers)["dlq.reason"] == b"deserialization"
    assert [one["value"] for one in backend.records] == [1, 3]


def test_a_partition_stops_in_front_of_an_unreadable_record_if_that_is_wanted(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    with reading(kafka, backend, orders, group, value_format="json", reactive_on_unreadable="stop") as world:
        kafka.write(orders, *({"value": value, "partition": 0} for value in (b"1", b"{broken", b"3")))
        wait_for_commit(kafka, group, orders, 0, 1)
        wait_until(lambda: "seek past it" in hindrance(world), "readiness says so")
        order(world, group, "seek", topic=orders, partition=0, offset=2)
        wait_for_commit(kafka, group, orders, 0, 3)
        wait_until(lambda: not hindrance(world), "it is ready again")
    assert [one["value"] for one in backend.records] == [1, 3]
