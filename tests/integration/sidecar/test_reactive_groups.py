"""The reactive consumer in its group: rebalances, slow backends, restarts, and what operators order."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.sidecar.reactive.options import Change
from tests.fixtures.backend import Backend, accept, held, slow
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.reactive_world import (
    consumer,
    hindrance,
    order,
    partitions_of,
    reading,
    settings,
    wait_for_commit,
    write,
)
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

JOINED_S = 60.0
POLL_INTERVAL_S = 6
"""A sidecar on a busy machine must not miss it."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


@pytest.mark.parametrize("protocol", mostly(["consumer"], ["classic"]))
def test_a_batch_on_its_way_ends_before_its_partition_is_given_away(
    kafka: Kafka, backend: Backend, orders: str, group: str, protocol: str
) -> None:
    release = threading.Event()
    backend.always(held(release))
    more = {"reactive_group_protocol": protocol}
    with reading(kafka, backend, orders, group, **more):
        write(kafka, orders, 1, partition=0)
        write(kafka, orders, 1, partition=1)
        backend.wait_for_records(2)
        second_settings = settings(backend, orders, group, name="second", **more)
        with started(kafka.bootstrap, **second_settings) as second:
            wait_until(lambda: consumer(second).session, "the second one begins")
            release.set()
            wait_until(lambda: partitions_of(second), "the second one has a partition", JOINED_S)
            for partition in (0, 1):
                write(kafka, orders, 1, partition=partition, first=1)
                wait_for_commit(kafka, group, orders, partition, 2)
    keys = Counter(call.headers["idempotency-key"] for call in backend.calls)
    assert set(keys) == {f"{orders}-{partition}-{offset}-{offset}" for partition in (0, 1) for offset in (0, 1)}
    assert set(keys.values()) == {1}  # nothing came twice


def test_what_does_not_end_in_time_comes_again_to_the_next_owner_under_the_same_key(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    never = threading.Event()
    backend.next(held(never), held(never))
    with reading(kafka, backend, orders, group, reactive_revoke_timeout_ms=100, drain_timeout_ms=500) as first:
        write(kafka, orders, 1, partition=0)
        write(kafka, orders, 1, partition=1)
        backend.wait_for_calls(2)
        with started(kafka.bootstrap, **settings(backend, orders, group, name="second")) as second:
            wait_until(lambda: partitions_of(second), "the second one has a partition", JOINED_S)
            (moved,) = partitions_of(second)
            wait_for_commit(kafka, group, orders, moved.partition, 1)
            kept = {moved._replace(partition=1 - moved.partition)}
            wait_until(lambda: partitions_of(first) == kept, "the first one has the other partition")
            again = [call for call in backend.calls if call.records[0]["partition"] == moved.partition]
            assert [call.headers["idempotency-key"] for call in again] == [f"{orders}-{moved.partition}-0-0"] * 2
    never.set()


def test_a_backend_slower_than_the_poll_interval_keeps_its_partitions(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    backend.next(slow(2 * POLL_INTERVAL_S))
    bounds = {
        "reactive_group_protocol": "consumer",  # brokers let members of the older one have no session so short
        "reactive_max_held_records": 1,
        "reactive_max_batch_records": 1,
        "consumer_properties": {"max.poll.interval.ms": f"{1000 * POLL_INTERVAL_S}"},
    }
    with reading(kafka, backend, orders, group, **bounds):
        write(kafka, orders, 3)
        wait_for_commit(kafka, group, orders, 0, 3)
    assert [call.offsets for call in backend.calls] == [[0], [1], [2]]


def test_a_sidecar_that_stops_ends_what_is_on_its_way_and_commits_it(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    backend.next(slow(0.3))
    with reading(kafka, backend, orders, group, reactive_commit_interval_ms=60_000):
        write(kafka, orders, 5)
        backend.wait_for_calls(1)
    done = backend.records[-1]["offset"] + 1
    assert kafka.committed(group, orders, 0) == done


def test_operators_pause_resume_seek_and_drain_it_and_a_restart_changes_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str, tmp_path: Path
) -> None:
    kept = {"state_dir": str(tmp_path)}
    with reading(kafka, backend, orders, group, **kept) as world:
        write(kafka, orders, 3)
        wait_for_commit(kafka, group, orders, 0, 3)
        order(world, group, "pause")
        assert hindrance(world) == ""
    write(kafka, orders, 2, first=3)
    with reading(kafka, backend, orders, group, **kept) as world:
        (shown,) = world.http.get("/adm/kafka/consumers").json()
        assert (shown["name"], shown["state"]) == (f"{group}.push", "paused")
        assert len(backend.records) == 3
        order(world, group, "resume")
        wait_for_commit(kafka, group, orders, 0, 5)
        order(world, group, "seek", topic=orders, partition=0, offset=1)
        wait_for_commit(kafka, group, orders, 0, 5)
        assert [one["offset"] for one in backend.wait_for_records(9)] == [0, 1, 2, 3, 4, 1, 2, 3, 4]
        order(world, group, "drain", timeoutMs=5_000)
        wait_until(lambda: not partitions_of(world), "it has left its group")
        write(kafka, orders, 1, first=5)
        order(world, group, "resume")
        wait_for_commit(kafka, group, orders, 0, 6)


def test_it_reads_and_delivers_otherwise_when_it_is_told_so_and_after_a_restart(
    kafka: Kafka, backend: Backend, orders: str, group: str, tmp_path: Path
) -> None:
    other = f"{orders}-other"
    kafka.create(other, 1)
    kept = {"state_dir": str(tmp_path)}
    change = Change(
        topics=(other,), delivery={"backend_path": "/elsewhere", "order_by_key": True, "filter": "key != 'not me'"}
    )

    def configured(world: SidecarWorld) -> None:
        found = consumer(world)
        assert found.session is not None
        loop = found.session.broken.get_loop()
        asyncio.run_coroutine_threadsafe(found.configure(change), loop).result(JOINED_S)

    with reading(kafka, backend, orders, group, **kept) as world:
        write(kafka, orders, 1)
        wait_for_commit(kafka, group, orders, 0, 1)
        configured(world)
        kafka.write(other, {"key": b"not me", "value": b"1"}, {"key": b"me", "value": b"2"})
        wait_for_commit(kafka, group, other, 0, 2)
        assert [call.path for call in backend.calls] == ["/kafka/records", "/elsewhere"]
    with reading(kafka, backend, orders, group, **kept) as world:
        write(kafka, orders, 1, first=1)
        kafka.write(other, {"key": b"me", "value": b"3"})
        wait_for_commit(kafka, group, other, 0, 3)
    assert [record["value"] for record in backend.records] == ["0", "2", "3"]


def test_a_pattern_reads_all_topics_that_match(kafka: Kafka, backend: Backend, topic: str, group: str) -> None:
    for number in (1, 2):
        kafka.create(f"{topic}.{number}", 1)
    pattern = {"reactive_topics": (), "reactive_topic_pattern": f"{topic}\\..*"}
    with reading(kafka, backend, topic, group, **pattern):
        for number in (1, 2):
            write(kafka, f"{topic}.{number}", 1)
        assert {record["topic"] for record in backend.wait_for_records(2)} == {f"{topic}.1", f"{topic}.2"}


def test_a_backend_that_is_away_makes_it_not_ready_and_not_dead_and_it_recovers_by_itself(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    quick = {"backend_circuit_failures": 1, "backend_circuit_pause_ms": 50, "backend_circuit_max_pause_ms": 100}
    with reading(kafka, backend, orders, group, **quick) as world:
        with backend.down():
            write(kafka, orders, 3)
            wait_until(lambda: "the backend is not called" in hindrance(world), "readiness says why")
            assert world.http.get("/health/liveness").status_code == 200
        wait_for_commit(kafka, group, orders, 0, 3)
        wait_until(lambda: not hindrance(world), "it is ready again")
        backend.always(accept)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_has_no_partition_is_ready(
    kafka: Kafka, backend: Backend, topic: str, group: str, protocol: str
) -> None:
    kafka.create(topic, 1)
    more = {"reactive_group_protocol": protocol}
    with (
        reading(kafka, backend, topic, group, **more),
        started(kafka.bootstrap, **settings(backend, topic, group, name="second", **more)) as second,
    ):
        wait_until(lambda: not hindrance(second), "it stands by")
        assert partitions_of(second) == set()


def test_a_static_member_comes_back_to_its_partitions_at_once(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    static = {"reactive_group_instance_id": f"{group}-1"}
    for number in range(2):
        with reading(kafka, backend, orders, group, **static) as world:
            wait_until(lambda: len(partitions_of(world)) == 2, "it has both partitions")
            write(kafka, orders, 1, first=number)
            wait_for_commit(kafka, group, orders, 0, number + 1)
