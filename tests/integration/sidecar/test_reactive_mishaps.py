"""What a reactive consumer makes of orders that fail half-way: it goes on, and leaves out nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from services.sidecar.consuming.positions import AtOffset, Edge, SeekTarget
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.reactive.options import Change
from services.sidecar.reactive.polling_consumer import PollingConsumer
from tests.fixtures.backend import Backend
from tests.fixtures.foreign_records import write_with_header_name
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.reactive_world import consumer, partitions_of, reading, wait_for_commit, write
from tests.integration.sidecar.world import Kafka, SidecarWorld

ORDERED_S = 30


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def done(world: SidecarWorld, order: Coroutine[Any, Any, object]) -> None:
    session = consumer(world).session
    assert session is not None
    asyncio.run_coroutine_threadsafe(order, session.broken.get_loop()).result(ORDERED_S)


def test_a_pattern_that_kafkas_client_does_not_take_changes_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    with reading(kafka, backend, orders, group) as world:
        with pytest.raises(Fault, match="pattern"):
            done(world, consumer(world).configure(Change(pattern="(?P<a>ord)ers.*")))
        assert consumer(world).interest.topics == (orders,)
        write(kafka, orders, 3)
        backend.wait_for_records(3)


def test_an_order_to_send_records_elsewhere_changes_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    with reading(kafka, backend, orders, group) as world:
        with pytest.raises(Fault, match="backend_hosts"):
            done(world, consumer(world).configure(Change(delivery={"backend_url": "http://elsewhere.example:80"})))
        assert consumer(world).delivery.backend_url == backend.host_url
        write(kafka, orders, 3)
        backend.wait_for_records(3)


def test_a_seek_behind_the_end_goes_on_at_the_end(kafka: Kafka, backend: Backend, orders: str, group: str) -> None:
    """Kafka's client would begin at the first record again, and give the backend everything."""
    with reading(kafka, backend, orders, group) as world:
        write(kafka, orders, 3)
        backend.wait_for_records(3)
        done(world, consumer(world).seek(SeekTarget(AtOffset(9999), orders, 0)))
        write(kafka, orders, 1, first=3)
        backend.wait_for_records(4)
        wait_for_commit(kafka, group, orders, 0, 4)
        assert [record["offset"] for record in backend.records] == [0, 1, 2, 3]


def test_a_seek_that_kafka_cannot_answer_changes_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*args: object) -> object:
        raise Fault(FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, "Kafka does not say where to seek")

    with reading(kafka, backend, orders, group) as world:
        write(kafka, orders, 3)
        backend.wait_for_records(3)
        with monkeypatch.context() as patched:
            patched.setattr("services.sidecar.reactive.polling_consumer.positions_of", silent)
            with pytest.raises(Fault, match="where to seek"):
                done(world, consumer(world).seek(SeekTarget(Edge.FIRST)))
        write(kafka, orders, 3, first=3)
        backend.wait_for_records(6)
        assert partitions_of(world)


def test_a_seek_that_ends_half_way_leaves_out_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object) -> object:
        raise Fault(FaultKind.ILLEGAL_CONSUMER_STATE, "cannot be sought yet")

    with reading(kafka, backend, orders, group) as world:
        write(kafka, orders, 3)
        wait_for_commit(kafka, group, orders, 0, 3)
        with monkeypatch.context() as patched:
            patched.setattr("services.sidecar.consuming.membership.Membership.seek", refused)
            patched.setattr("services.sidecar.consuming.membership.Membership.begin", refused)
            with pytest.raises(Fault, match="sought"):
                done(world, consumer(world).seek(SeekTarget(Edge.FIRST)))
        write(kafka, orders, 3, first=3)
        wait_for_commit(kafka, group, orders, 0, 6)
    assert [record["offset"] for record in backend.records] == [0, 1, 2, 3, 4, 5]


def test_a_pause_for_which_the_client_is_too_busy_can_be_resumed(
    kafka: Kafka, backend: Backend, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*args: object) -> None:
        raise Fault(FaultKind.CONSUMER_INSTANCE_BUSY, "the reactive consumer did not do it in time")

    with reading(kafka, backend, orders, group) as world:
        with monkeypatch.context() as patched:
            patched.setattr("services.sidecar.reactive.polling_consumer.PollingConsumer.rest", busy)
            with pytest.raises(Fault, match="in time"):
                done(world, consumer(world).pause())
        done(world, consumer(world).resume())
        write(kafka, orders, 3)
        backend.wait_for_records(3)


def test_a_resume_delivers_though_its_start_ends_half_way_through_it(
    kafka: Kafka, backend: Backend, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start looks whether batches can be settled: it ends while the client is told to go on."""
    asked, checked = threading.Event(), threading.Event()
    wake = PollingConsumer.wake

    async def check(*args: object) -> None:
        await asyncio.to_thread(asked.wait, ORDERED_S)
        checked.set()

    async def woken(self: PollingConsumer) -> None:
        asked.set()
        await asyncio.to_thread(checked.wait, ORDERED_S)
        await wake(self)  # a turn of the client's thread: the start goes on meanwhile

    monkeypatch.setattr("services.sidecar.reactive.at_least_once.PlainSettler.check", check)
    monkeypatch.setattr(PollingConsumer, "wake", woken)
    with reading(kafka, backend, orders, group) as world:
        wait_until(lambda: consumer(world).session, "it has begun")
        done(world, consumer(world).pause())
        done(world, consumer(world).resume())
        write(kafka, orders, 3)
        backend.wait_for_records(3)


def test_a_record_with_a_header_that_nobody_can_name_stops_nothing(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    with reading(kafka, backend, orders, group):
        write(kafka, orders, 100)  # what the interpreter does often it does in another way
        for _ in range(3):
            write_with_header_name(kafka.bootstrap, orders, b"n\xffme", b"foreign")
        write(kafka, orders, 1)
        wait_for_commit(kafka, group, orders, 0, 104)
    assert [record["value"] for record in backend.records[100:]] == ["foreign", "foreign", "foreign", "0"]


def test_what_an_operator_has_it_read_can_be_replayed_to_its_backend(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    topic = f"{orders}.more"
    kafka.create(topic, 1)
    with reading(kafka, backend, orders, group) as world:
        done(world, consumer(world).configure(Change(topics=(topic,))))
        for wanted in (orders, topic):
            answer = world.http.post("/adm/kafka/replay", json={"ranges": [{"topic": wanted}], "dryRun": True})
            assert answer.status_code == 202, answer.text
