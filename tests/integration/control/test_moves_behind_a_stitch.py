"""Moves that stitch first, and copy the whole log behind the stitch, on a real log, two clusters and a router."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mesh.rpc import events, topic_moves
from services.control.decisions.topic_moves import commands, leftovers
from services.control.domain.topic_moves import two_cuts
from services.control.store.journal import Journal
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.integration.control.test_stitched_moves import PARTITIONS, Apples, replayed, retention_of, set_retention
from tests.integration.control.world import CALL, WITHIN, World, create_topic, refused, until
from tests.integration.router.parts import ServiceProcess

STATE = grpc.StatusCode.FAILED_PRECONDITION
COPYING, DONE = topic_moves.TOPIC_MOVE_STATE_COPYING, topic_moves.TOPIC_MOVE_STATE_DONE
BOTH, COPY = topic_moves.TOPIC_MOVE_KIND_STITCH_THEN_COPY, topic_moves.TOPIC_MOVE_KIND_COPY
STITCH = topic_moves.TOPIC_MOVE_KIND_STITCH

Record = tuple[int, int, bytes]
"""Partition, offset and value."""


class Router:
    """A router that the test starts: until then nothing is copied."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self._running: list[ServiceProcess] = []

    def start(self) -> None:
        settings = {
            "HOME_BOOTSTRAP_SERVERS": self._world.home,
            "EVENTS_TOPIC": self._world.settings.events_topic,
            "NAME": "r1",
            "CONTROL_ADDRESSES": f"127.0.0.1:{self._world.control.port}",
        }
        process = ServiceProcess("router", free_block(2), self._folder / "router.log", settings)
        process.start()
        self._running.append(process)

    def kill(self) -> None:
        while self._running:
            self._running.pop().stop(signal.SIGKILL)


@pytest.fixture
def router(mesh_of_two: World, tmp_path: Path) -> Iterator[Router]:
    router = Router(mesh_of_two, tmp_path)
    yield router
    router.kill()


@pytest.fixture
async def apples(
    mesh_of_two: World, topic: str, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Apples:
    create_topic(kafka_c1.bootstrap, topic, PARTITIONS)
    await mesh_of_two.set(topic, "c1")
    mesh_of_two.control.members.ever_reported = True
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    return Apples(mesh_of_two, topic, unique_name("control-group"), clusters)


def read(apples: Apples, cluster: str, topic: str) -> list[Record]:
    """All committed records that the cluster has now, by partition and offset."""
    settings = {"group.id": "reader", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "bootstrap.servers": apples.clusters[cluster]})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Record] = []
    at_end = 0
    try:
        while at_end < PARTITIONS:
            message = consumer.poll(WITHIN)
            assert message is not None, f"{topic} on {cluster} can't be read"
            if message.error() is not None:
                at_end += 1
            else:
                found.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
    finally:
        consumer.close()
    return sorted(found)


def write(apples: Apples, cluster: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """The values in turn to each partition."""
    producer = Producer({"bootstrap.servers": apples.clusters[cluster], "linger.ms": 5, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(WITHIN) == 0


def transaction(apples: Apples, cluster: str, topic: str, values: list[bytes], *, commit: bool) -> Producer:
    """In partition 0."""
    producer = Producer({"bootstrap.servers": apples.clusters[cluster], "transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(WITHIN)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(WITHIN)
    if commit:
        producer.commit_transaction(WITHIN)
    else:
        producer.abort_transaction(WITHIN)
    return producer


def topics_of(apples: Apples, cluster: str) -> set[str]:
    kafka = AdminClient({"bootstrap.servers": apples.clusters[cluster]})
    return {each for each in kafka.list_topics(timeout=CALL).topics if each.startswith(apples.topic)}


async def stitched(apples: Apples, move: topic_moves.MoveWithRecords) -> topic_moves.MoveWithRecords:
    return await apples.when(move.name, lambda found: found.state == COPYING, "is stitched, and copies")


async def certified(apples: Apples, move: topic_moves.MoveWithRecords) -> topic_moves.MoveWithRecords:
    found = await apples.when(move.name, lambda found: found.HasField("certificate"), "has its certificate")
    assert found.state == DONE
    assert found.certificate.confirmed, found.certificate.differences
    return found


async def test_the_whole_log_comes_along_behind_a_stitch_with_the_offsets_that_clients_saw(
    apples: Apples, router: Router
) -> None:
    """Codecs, aborted and committed transactions are in both parts."""
    topic = apples.topic
    for codec in ("none", "zstd"):
        await asyncio.to_thread(
            write, apples, "c1", topic, [b"old-%d" % n for n in range(40)], **{"compression.type": codec}
        )
    await asyncio.to_thread(transaction, apples, "c1", topic, [b"old-gone"] * 7, commit=False)
    await asyncio.to_thread(transaction, apples, "c1", topic, [b"old-kept"] * 3, commit=True)
    await apples.commit("c1", 5, 6)
    move = await apples.start("c2", kind=topic_moves.TOPIC_MOVE_KIND_UNSPECIFIED)
    assert move.spec.kind == BOTH
    there = await stitched(apples, move)
    tail = there.stitch.way.target_topic
    assert [(each.end, each.base, each.client_offset) for each in there.stitch.cuts] == [(52, 0, 52), (40, 0, 40)]
    assert apples.parts_in_table() == [("c1", 1, [(0, 0), (0, 0)]), ("c2", 1, [(52, 52), (40, 40)])]
    assert (await apples.world.explain(topic)).upstream_topic == tail
    old = await asyncio.to_thread(read, apples, "c1", topic)
    await asyncio.to_thread(
        write, apples, "c2", tail, [b"new-%d" % n for n in range(30)], **{"compression.type": "lz4"}
    )
    await asyncio.to_thread(transaction, apples, "c2", tail, [b"new-gone"] * 5, commit=False)
    await asyncio.to_thread(transaction, apples, "c2", tail, [b"new-kept"] * 2, commit=True)
    new = [(part, at + (52, 40)[part], value) for part, at, value in await asyncio.to_thread(read, apples, "c2", tail)]
    router.start()
    done = await certified(apples, move)
    assert await asyncio.to_thread(read, apples, "c2", topic) == sorted([*old, *new])
    assert not apples.parts_in_table(), "the log is that of one topic"
    explained = await apples.world.explain(topic)
    assert (explained.cluster, explained.upstream_topic) == ("c2", topic)
    assert [each.client_offset for each in done.cuts] == [76, 55]
    assert sum(each.source.records for each in done.certificate.partitions) == len(old) + len(new)
    assert await apples.committed("c2") == [5, 6]
    await asyncio.to_thread(write, apples, "c2", topic, [b"later"])
    request = topic_moves.VerifyTopicMoveRequest(name=move.name)
    assert (await apples.moves.VerifyTopicMove(request, timeout=CALL)).confirmed


async def test_the_way_back_copies_new_records_only(apples: Apples, router: Router) -> None:
    router.start()
    await asyncio.to_thread(write, apples, "c1", apples.topic, [b"%d" % n for n in range(20)])
    there = await certified(apples, await apples.start("c2", kind=BOTH))
    await asyncio.to_thread(write, apples, "c2", apples.topic, [b"%d" % n for n in range(20, 30)])
    back = await certified(apples, await apples.start("c1", kind=BOTH))
    assert back.stitch.way.source_cluster == there.copy.target_cluster == "c2"
    assert not apples.parts_in_table()
    assert [each[2] for each in await asyncio.to_thread(read, apples, "c1", apples.topic) if each[0] == 0] == [
        b"%d" % n for n in range(0, 30, 2)
    ]


async def test_nothing_is_left_behind_when_gateways_need_it_no_more(
    apples: Apples, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LOOK_EVERY", 0.2)
    await apples.world.stop()
    await apples.world.start()
    apples.world.control.members.ever_reported = True
    router.start()
    await asyncio.to_thread(write, apples, "c1", apples.topic, [b"%d" % n for n in range(20)])
    move = await certified(apples, await apples.start("c2", kind=BOTH, delete_old=True))
    tail = move.stitch.way.target_topic
    assert await asyncio.to_thread(topics_of, apples, "c2") == {apples.topic, tail}, "gateways may ask for the tail"
    monkeypatch.setattr(two_cuts, "NEEDED", two_cuts.NEEDED * 0)
    await apples.when(move.name, lambda found: len(found.deleted) == 2, "has nothing left behind it")
    await until(lambda: topics_of(apples, "c1") == set(), "the old topic is gone")
    await until(lambda: topics_of(apples, "c2") == {apples.topic}, "the tail is gone")
    request = topic_moves.VerifyTopicMoveRequest(name=move.name)
    verified = await apples.moves.VerifyTopicMove(request, timeout=CALL)
    assert verified.confirmed, verified.differences
    assert sum(each.target.records for each in verified.partitions) == 20


async def test_a_move_that_is_cancelled_between_its_cuts_leaves_a_stitched_log_and_the_next_one_dissolves_it(
    apples: Apples, router: Router
) -> None:
    await asyncio.to_thread(write, apples, "c1", apples.topic, [b"%d" % n for n in range(20)])
    move = await stitched(apples, await apples.start("c2", kind=BOTH))
    request = topic_moves.CancelTopicMoveRequest(name=move.name)
    cancelled = await apples.moves.CancelTopicMove(request, timeout=CALL)
    assert cancelled.state == topic_moves.TOPIC_MOVE_STATE_CANCELLED
    assert [part[0] for part in apples.parts_in_table()] == ["c1", "c2"]
    tail = move.stitch.way.target_topic
    await asyncio.to_thread(write, apples, "c2", tail, [b"%d" % n for n in range(20, 30)])
    await asyncio.to_thread(set_retention, apples, "c1", bytes=1_000_000)  # as control does to the oldest part
    again = await apples.start("c2", kind=BOTH)
    assert again.state == COPYING
    assert not again.HasField("stitch")
    router.start()
    done = await certified(apples, again)
    assert done.copy.topic == tail
    assert not apples.parts_in_table()
    found = await asyncio.to_thread(read, apples, "c2", apples.topic)
    assert [each[2] for each in found if each[0] == 1] == [b"%d" % n for n in range(1, 30, 2)]
    own = await asyncio.to_thread(retention_of, apples, "c2")
    await until(lambda: retention_of(apples, "c1") == own, "the old topic has its own retention again")


async def test_a_topic_that_cant_be_stitched_copies_first_and_says_why(apples: Apples) -> None:
    await replayed(apples)
    move = await apples.start("c2", kind=topic_moves.TOPIC_MOVE_KIND_UNSPECIFIED)
    assert (move.spec.kind, move.state) == (COPY, COPYING)
    assert "is open and about topic" in move.choice


async def test_a_log_with_a_part_of_the_own_name_on_the_target_fits_a_stitch_only(apples: Apples) -> None:
    await asyncio.to_thread(write, apples, "c1", apples.topic, [b"apple"] * 4)
    await apples.moved("c2")
    await apples.moved("c1")
    await refused(apples.start("c2", kind=BOTH), STATE, "has a part on 'c2' already", "move it with --stitch")
    await refused(apples.start("c2", kind=COPY), STATE, "stitched together from parts")
    any_kind = apples.start("c2", kind=topic_moves.TOPIC_MOVE_KIND_UNSPECIFIED)
    await refused(any_kind, STATE, "has a part on 'c2' already")


async def test_a_target_with_other_records_is_refused_before_the_log_is_stitched(apples: Apples) -> None:
    await asyncio.to_thread(write, apples, "c1", apples.topic, [b"apple"] * 4)
    create_topic(apples.clusters["c2"], apples.topic, PARTITIONS)
    await asyncio.to_thread(write, apples, "c2", apples.topic, [b"pear"] * 2)
    await refused(apples.start("c2", kind=BOTH), STATE, "partition 0 has another record at offset 0")
    await asyncio.to_thread(write, apples, "c2", apples.topic, [b"pear"] * 8)
    await refused(apples.start("c2", kind=BOTH), STATE, "ends at 5, and the log at 2")
    assert not apples.world.control.journal.view.topic_moves.open
    assert not apples.parts_in_table()


STEPS = (
    ("topic_move_started", 1),
    ("rollout_switched", 1),
    ("topic_move_stitched", 1),
    ("topic_move_cut_begun", 2),
    ("topic_move_cut_reached", 2),
    ("rollout_switched", 2),
    ("topic_move_ended", 1),
)
"""The first cut is that of a stitched move, whose other events `test_stitched_moves` goes through."""


@pytest.mark.parametrize(("last", "times"), STEPS)
async def test_a_control_that_stops_behind_any_event_leaves_a_move_that_the_next_control_ends(
    last: str, times: int, apples: Apples, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The router is killed with control."""
    await asyncio.to_thread(write, apples, "c1", apples.topic, [b"%d" % n for n in range(20)])
    stopped = asyncio.Event()
    append = Journal.append
    seen = 0

    async def append_and_stop(journal: Journal, *arguments: Any, **options: Any) -> list[events.Event]:
        nonlocal seen
        new: list[events.Event] = await append(journal, *arguments, **options)
        seen += any(event.WhichOneof("payload") == last for event in new)
        if seen >= times:
            stopped.set()
            await asyncio.get_running_loop().create_future()  # as a process that is killed there
        return new

    router.start()
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", append_and_stop)
        starting = asyncio.create_task(apples.start("c2", kind=BOTH))
        async with asyncio.timeout(WITHIN):
            await stopped.wait()
        starting.cancel()
        patched.setattr(commands, "LOOK_EVERY", WITHIN)
        router.kill()
        await apples.world.stop()
    await apples.world.start()
    apples.world.control.members.ever_reported = True
    router.start()
    [move] = apples.world.control.journal.view.topic_moves.newest
    done = await certified(apples, move)
    assert done.stitch.cuts
    assert not apples.parts_in_table()
    found = await asyncio.to_thread(read, apples, "c2", apples.topic)
    assert [each[2] for each in found if each[0] == 0] == [b"%d" % n for n in range(0, 20, 2)]
