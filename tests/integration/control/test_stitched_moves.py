"""Stitched moves on a real log and two real clusters: parts, offsets, refusals, the way back, and parts that expire."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from mesh.routing import UpstreamCluster
from mesh.rpc import (
    admin,
    events,
    record_rules,
    record_rules_grpc,
    replays,
    topic_moves,
    topic_moves_grpc,
    topics,
    topics_grpc,
)
from services.control.decisions.stitches import expiry, retaining
from services.control.decisions.topic_moves import commands
from services.control.domain.stitches.logs import STITCHES, log_of
from services.control.store.journal import Journal
from services.control.upstream.log_sizes import partition_sizes
from services.control.upstream.share_starts import share_starts, share_states
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import CALL, WITHIN, World, create_topic, refused, until
from tests.integration.gateway.sharing import set_up

STATE = grpc.StatusCode.FAILED_PRECONDITION
DONE = topic_moves.TOPIC_MOVE_STATE_DONE
BUDGET_MS = 5_000
PARTITIONS = 2
WEEK_MS = 604_800_000


class Apples:
    """A topic with two partitions that lives on c1, a group, and the operator who moves the topic."""

    def __init__(self, world: World, topic: str, group: str, clusters: dict[str, str]) -> None:
        self.world, self.topic, self.group, self.clusters = world, topic, group, clusters

    @property
    def moves(self) -> Any:
        return topic_moves_grpc.TopicMoveServiceStub(self.world.channel)

    async def start(self, target: str, **fields: Any) -> topic_moves.MoveWithRecords:
        fields = {
            "kind": topic_moves.TOPIC_MOVE_KIND_STITCH,
            "hold_budget": timedelta(milliseconds=BUDGET_MS),
            **fields,
        }
        spec = topic_moves.TopicMoveSpec(topic=self.topic, target_cluster=target, **fields)
        request = topic_moves.StartTopicMoveRequest(spec=spec, request_id=str(uuid.uuid4()))
        move: topic_moves.MoveWithRecords = await self.moves.StartTopicMove(request, timeout=CALL)
        return move

    async def shown(self, name: str) -> topic_moves.MoveWithRecords:
        move: topic_moves.MoveWithRecords = await self.moves.GetTopicMove(
            topic_moves.GetTopicMoveRequest(name=name), timeout=CALL
        )
        return move

    async def when(
        self, name: str, is_so: Callable[[topic_moves.MoveWithRecords], bool], what: str
    ) -> topic_moves.MoveWithRecords:
        async def look() -> bool:
            return is_so(await self.shown(name))

        await until(look, f"{name} {what}")
        return await self.shown(name)

    async def moved(self, target: str) -> topic_moves.MoveWithRecords:
        """To its certificate."""
        move = await self.start(target)
        return await self.when(move.name, lambda found: found.HasField("certificate"), "has its certificate")

    async def write(self, cluster: str, *records: int) -> None:
        """So many records to each partition."""

        def produce() -> None:
            producer = Producer({"bootstrap.servers": self.clusters[cluster], "linger.ms": 0})
            for partition, count in enumerate(records):
                for _ in range(count):
                    producer.produce(self.topic, b"apple", partition=partition)
            assert producer.flush(WITHIN) == 0

        await asyncio.to_thread(produce)

    async def commit(self, cluster: str, *offsets: int) -> None:
        def commit() -> None:
            consumer = Consumer(
                {"bootstrap.servers": self.clusters[cluster], "group.id": self.group, "enable.auto.commit": False}
            )
            try:
                places = [TopicPartition(self.topic, number, offset) for number, offset in enumerate(offsets)]
                consumer.commit(offsets=places, asynchronous=False)
            finally:
                consumer.close()

        await asyncio.to_thread(commit)

    async def committed(self, cluster: str) -> list[int]:
        def ask() -> list[int]:
            wanted = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            kafka = AdminClient({"bootstrap.servers": self.clusters[cluster]})
            [future] = kafka.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group, wanted)]).values()
            return [each.offset for each in future.result(WITHIN).topic_partitions]

        return await asyncio.to_thread(ask)

    async def delete_before(self, cluster: str, *offsets: int) -> None:
        def delete() -> None:
            kafka = AdminClient({"bootstrap.servers": self.clusters[cluster]})
            places = [TopicPartition(self.topic, number, offset) for number, offset in enumerate(offsets)]
            for future in kafka.delete_records(places).values():
                future.result(WITHIN)

        await asyncio.to_thread(delete)

    def parts_in_table(self) -> list[tuple[str, int, list[tuple[int, int]]]]:
        """Cluster, visit, and start and shift of each partition."""
        log = log_of(self.world.control.journal.view.state.effective, self.topic)
        return [
            (part.cluster_name, part.visit, [(each.start, each.shift) for each in part.partitions])
            for part in (() if log is None else log.parts)
        ]

    async def parts(self) -> topics.GetTopicPartsResponse:
        stub: Any = topics_grpc.TopicServiceStub(self.world.channel)
        answer: topics.GetTopicPartsResponse = await stub.GetTopicParts(
            topics.GetTopicPartsRequest(name=f"topics/{self.topic}"), timeout=CALL
        )
        return answer

    async def positions(self) -> list[tuple[int, int, int]]:
        """Committed offset, start and end of each partition, as control shows the group."""
        stub: Any = topics_grpc.GroupServiceStub(self.world.channel)
        answer = await stub.GetGroup(topics.GetGroupRequest(name=f"groups/{self.group}"), timeout=CALL)
        return [(each.committed, each.start, each.end) for each in answer.positions]


@pytest.fixture
async def apples(
    mesh_of_two: World, topic: str, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Apples:
    create_topic(kafka_c1.bootstrap, topic, PARTITIONS)
    await mesh_of_two.set(topic, "c1")
    mesh_of_two.control.members.ever_reported = True
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    return Apples(mesh_of_two, topic, unique_name("control-group"), clusters)


async def test_a_stitched_move_copies_nothing_and_offsets_go_on_there_and_back(apples: Apples) -> None:
    await apples.write("c1", 5, 3)
    await apples.commit("c1", 4, 1)
    there = await apples.moved("c2")
    assert [(each.end, each.base, each.client_offset) for each in there.cuts] == [(5, 0, 5), (3, 0, 3)]
    assert apples.parts_in_table() == [("c1", 1, [(0, 0), (0, 0)]), ("c2", 1, [(5, 5), (3, 3)])]
    assert (await apples.world.explain(apples.topic)).cluster == "c2"
    assert await apples.committed("c2") == [4, 1]
    assert there.certificate.confirmed, there.certificate.differences
    assert there.certificate.positions == there.positions
    assert len(there.positions) == PARTITIONS

    await apples.write("c2", 2, 0)
    back = await apples.moved("c1")
    assert [(each.end, each.base, each.client_offset) for each in back.cuts] == [(2, 5, 7), (0, 3, 3)]
    assert apples.parts_in_table()[2] == ("c1", 2, [(7, 2), (3, 0)])
    assert back.certificate.confirmed, back.certificate.differences
    request = topic_moves.VerifyTopicMoveRequest(name=there.name)
    verified = await apples.moves.VerifyTopicMove(request, timeout=CALL)
    assert verified.confirmed, verified.differences

    await apples.write("c1", 1, 1)
    again = await apples.moved("c2")
    assert [(each.end, each.base, each.client_offset) for each in again.cuts] == [(6, 2, 8), (4, 0, 4)]
    assert apples.parts_in_table()[3] == ("c2", 2, [(8, 6), (4, 4)])
    assert again.certificate.confirmed, again.certificate.differences


async def test_a_group_that_reads_the_old_part_has_a_lag_over_both(apples: Apples) -> None:
    await apples.write("c1", 5, 3)
    await apples.commit("c1", 4, 3)
    await apples.moved("c2")
    await apples.write("c2", 10, 1)
    assert await apples.positions() == [(4, 0, 15), (3, 0, 4)]
    stub: Any = topics_grpc.TopicServiceStub(apples.world.channel)
    found = await stub.GetTopic(topics.GetTopicRequest(name=f"topics/{apples.topic}"), timeout=CALL)
    assert [(each.group, each.lag) for each in found.readers] == [(apples.group, 12)]
    await apples.delete_before("c1", 2, 0)

    async def starts() -> bool:
        return await apples.positions() == [(4, 2, 15), (3, 0, 4)]

    await until(starts, "the log begins where its oldest part does")


async def test_parts_say_what_is_left_and_until_when_and_an_expired_part_leaves(
    apples: Apples, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apples.write("c1", 5, 3)
    await asyncio.to_thread(set_retention, apples, "c1", ms=WEEK_MS)
    [only] = (await apples.parts()).parts
    assert (only.cluster, only.expiry) == ("c1", "clients write there")
    await apples.moved("c2")
    await apples.write("c2", 2, 1)
    old, new = (await apples.parts()).parts
    assert [(each.start, each.end) for each in old.partitions] == [(0, 5), (0, 3)]
    assert [(each.start, each.end) for each in new.partitions] == [(5, 7), (3, 4)]
    assert old.expiry.startswith("at the latest 20")
    assert 0 < old.expire_time.seconds - old.end_time.seconds - WEEK_MS // 1000 < 3600
    assert old.size_bytes
    await asyncio.to_thread(set_retention, apples, "c2", ms=-1)
    assert (await apples.parts()).parts[0].expiry == "never: retention.ms is -1"
    removed = apples.world.clusters.RemoveCluster(admin.RemoveClusterRequest(name="clusters/c1"), timeout=CALL)
    await refused(removed, STATE, f"has parts of the logs of stitched topics: {apples.topic}")
    await _restart_with_short_looks(apples, monkeypatch)
    await apples.delete_before("c1", 5, 2)
    await apples.delete_before("c1", 5, 3)
    await until(lambda: [part[0] for part in apples.parts_in_table()] == ["c2"], "the old part has left")
    assert apples.parts_in_table() == [("c2", 1, [(5, 5), (3, 3)])]
    [event] = await apples.world.history(stream=STITCHES, page_size=1)
    assert event.reason == "its part on c1 has expired"


@pytest.mark.parametrize("made_anew", [False, True])
async def test_the_log_of_a_topic_that_is_deleted_ends(
    made_anew: bool, apples: Apples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a new topic of the name would have the offsets and the old records of the one that is gone."""
    await apples.write("c1", 5, 3)
    await apples.moved("c2")
    if made_anew:
        await anew(apples, "c2")
    else:
        await asyncio.to_thread(delete, apples, "c2")
    await _restart_with_short_looks(apples, monkeypatch)
    await until(lambda: not apples.parts_in_table(), "the log has ended")
    [event] = await apples.world.history(stream=STITCHES, page_size=1)
    assert event.reason == f"topic {apples.topic} is gone, or was made anew"
    assert (await apples.world.explain(apples.topic)).cluster == "c2"


def delete(apples: Apples, cluster: str) -> None:
    kafka = AdminClient({"bootstrap.servers": apples.clusters[cluster]})
    kafka.delete_topics([apples.topic])[apples.topic].result(WITHIN)
    wait_until(lambda: apples.topic not in kafka.list_topics(timeout=WITHIN).topics, "the topic is gone")


async def anew(apples: Apples, cluster: str) -> None:
    await asyncio.to_thread(delete, apples, cluster)
    await asyncio.to_thread(create_topic, apples.clusters[cluster], apples.topic, PARTITIONS)


def set_retention(apples: Apples, cluster: str, **settings: int) -> None:
    kafka = AdminClient({"bootstrap.servers": apples.clusters[cluster]})
    entries = [
        ConfigEntry(f"retention.{name}", str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, apples.topic, incremental_configs=entries)
    for future in kafka.incremental_alter_configs([resource]).values():
        future.result(WITHIN)


def retention_of(apples: Apples, cluster: str) -> tuple[int, int]:
    """`retention.ms` and `retention.bytes`."""
    kafka = AdminClient({"bootstrap.servers": apples.clusters[cluster]})
    [future] = kafka.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, apples.topic)]).values()
    found = future.result(WITHIN)
    return int(found["retention.ms"].value), int(found["retention.bytes"].value)


async def _restart_with_short_looks(apples: Apples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(retaining, "LOOK_EVERY", 0.1)
    await apples.world.stop()
    await apples.world.start()
    apples.world.control.members.ever_reported = True


async def test_the_retention_of_the_topic_holds_over_all_parts_and_leaves_the_old_topic_with_the_last_part(
    apples: Apples, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has(cluster: str, wanted: tuple[int, int], what: str) -> None:
        async def look() -> bool:
            return await asyncio.to_thread(retention_of, apples, cluster) == wanted

        await until(look, what)

    await _restart_with_short_looks(apples, monkeypatch)
    await apples.write("c1", 5, 3)
    await asyncio.to_thread(set_retention, apples, "c1", ms=WEEK_MS, bytes=100_000)
    await apples.moved("c2")
    await has("c2", (WEEK_MS, 100_000), "the new part has the retention of the topic")
    await apples.write("c2", 1, 2)
    c2 = apples.world.control.journal.view.state.effective.clusters["c2"]
    sizes = (await partition_sizes(c2, {apples.topic: PARTITIONS}))[apples.topic]
    assert 0 < sizes[0] < sizes[1]
    await has("c1", (WEEK_MS, 100_000 - sizes[0]), "the old part has what the smallest partition leaves")

    await asyncio.to_thread(set_retention, apples, "c2", ms=2 * WEEK_MS, bytes=-1)
    await has("c1", (2 * WEEK_MS, -1), "the old part follows the operator's change")
    await asyncio.to_thread(set_retention, apples, "c2", bytes=1)
    await has("c1", (2 * WEEK_MS, 0), "nothing is left for the old part")

    await apples.moved("c1")
    await has("c1", (2 * WEEK_MS, 1), "the topic has its own retention again where it came back")
    await has("c2", (-1, -1), "a part amid the log keeps everything")

    await asyncio.to_thread(set_retention, apples, "c1", ms=WEEK_MS, bytes=-1)
    await apples.moved("c2")
    await apples.delete_before("c1", 5, 3)
    await apples.delete_before("c2", 1, 2)
    await until(lambda: len(apples.parts_in_table()) == 1, "all old parts have left")
    assert await asyncio.to_thread(retention_of, apples, "c1") == (WEEK_MS, -1)
    assert await asyncio.to_thread(retention_of, apples, "c2") == (WEEK_MS, -1)


async def test_a_write_to_the_old_part_behind_the_cut_is_found(apples: Apples) -> None:
    await apples.write("c1", 1, 1)
    move = await apples.moved("c2")
    await apples.write("c1", 1)
    request = topic_moves.VerifyTopicMoveRequest(name=move.name)
    found = await apples.moves.VerifyTopicMove(request, timeout=CALL)
    assert not found.confirmed
    assert "ends at 2, and the cut is at 1" in found.differences[0]
    await refused(apples.start("c1"), STATE, "it ends at 2, and its part of the log ended at 1")


async def test_an_open_transaction_stops_the_cut_and_its_end_lets_the_next_attempt_through(apples: Apples) -> None:
    producer = Producer({"bootstrap.servers": apples.clusters["c1"], "transactional.id": f"{apples.topic}-txn"})
    await asyncio.to_thread(producer.init_transactions, WITHIN)
    producer.begin_transaction()
    producer.produce(apples.topic, b"apple", partition=1)
    await asyncio.to_thread(producer.flush, WITHIN)
    move = await apples.start("c2", hold_budget=timedelta(milliseconds=300))
    found = await apples.when(move.name, lambda found: found.cuts_given_up > 0, "gives a cut up")
    assert "a transaction is open in 1 partitions" in found.problem
    assert not apples.parts_in_table(), "the cut that was given up leaves no part"
    await asyncio.to_thread(producer.commit_transaction, WITHIN)
    done = await apples.when(move.name, lambda found: found.state == DONE, "is done")
    assert [each.end for each in done.cuts] == [0, 2]


Refused = Callable[[Apples], Awaitable[Any]]


async def _compacted(apples: Apples) -> None:
    apples.topic = f"{apples.topic}-compacted"
    create_topic(apples.clusters["c1"], apples.topic, 1, **{"cleanup.policy": "compact"})
    await apples.world.set(apples.topic, "c1")


async def _with_records(apples: Apples) -> None:
    create_topic(apples.clusters["c2"], apples.topic, PARTITIONS)
    await apples.write("c2", 1)


async def _with_other_partitions(apples: Apples) -> None:
    create_topic(apples.clusters["c2"], apples.topic, PARTITIONS + 1)


async def _mirrored(apples: Apples) -> None:
    mirror = record_rules.MirrorSpec(
        source_cluster="c1", target_cluster="c2", topic=apples.topic, target_topic="m-{topic}"
    )
    stub: Any = record_rules_grpc.RecordRuleServiceStub(apples.world.channel)
    spec = record_rules.RecordRuleSpec(record_rule_id="m", mirror=mirror)
    await stub.CreateRecordRule(record_rules.CreateRecordRuleRequest(record_rule=spec), timeout=CALL)


async def replayed(apples: Apples) -> None:
    to = replays.ReplayToProfile(sample=10)
    spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic=apples.topic)], profile=to)
    await apples.world.replays.StartReplay(replays.StartReplayRequest(spec=spec), timeout=CALL)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_compacted, "would remove a record of the old part"),
        (_with_records, "has records that are not of topic"),
        (_with_other_partitions, "the move needs as many"),
        (_mirrored, "record rule 'm' reads topic"),
        (replayed, "is open and about topic"),
    ],
)
async def test_topics_whose_log_cant_be_stitched_are_refused(make: Refused, says: str, apples: Apples) -> None:
    await make(apples)
    await refused(apples.start("c2"), STATE, says)
    assert not apples.world.control.journal.view.topic_moves.open


async def test_a_mirror_that_would_not_follow_its_topic_stops_a_copy_too(apples: Apples) -> None:
    await _mirrored(apples)
    copying = apples.start("c2", kind=topic_moves.TOPIC_MOVE_KIND_COPY)
    await refused(copying, STATE, "record rule 'm' reads topic", "would not follow")
    assert not apples.world.control.journal.view.topic_moves.open


async def test_a_share_group_gets_its_start_in_the_next_part_and_has_a_lag_over_all_parts(apples: Apples) -> None:
    """Also one that no record has come to yet: by its settings it would begin behind the records of the first hour."""
    await apples.write("c1", 5, 3)
    await asyncio.to_thread(set_up, apples.clusters["c1"], apples.group)
    with _member(apples, "c1", apples.group) as consumer:
        await _accepts(consumer, 8)
    waiting = f"{apples.group}-waiting"
    with _member(apples, "c1", waiting) as consumer:
        await until(lambda: _knows(apples, "c1", waiting), "the other group is there")
        await apples.write("c1", 2, 0)
        await apples.moved("c2")
    await apples.write("c2", 1, 4)
    for group in (apples.group, waiting):
        assert await share_starts(_side(apples, "c2"), apples.topic, [group]) == {group: {0: 0, 1: 0}}
    # 4.2 and later tell the lag: two records of the old part, and five of the new one
    assert await apples.positions() == [(5, 0, 8), (3, 0, 7)]
    stub: Any = topics_grpc.TopicServiceStub(apples.world.channel)
    found = await stub.GetTopic(topics.GetTopicRequest(name=f"topics/{apples.topic}"), timeout=CALL)
    assert {each.group: each.lag for each in found.readers}[apples.group] == 7

    with _member(apples, "c2", apples.group) as consumer:
        await _accepts(consumer, 5)
    await apples.moved("c1")
    await apples.write("c1", 1, 0)
    assert await apples.positions() == [(6, 0, 9), (7, 0, 7)]


async def test_a_share_group_with_members_on_the_next_cluster_stops_the_cut_until_they_leave(apples: Apples) -> None:
    await apples.write("c1", 1, 1)
    for cluster in ("c1", "c2"):
        await asyncio.to_thread(set_up, apples.clusters[cluster], apples.group)
    with _member(apples, "c1", apples.group) as consumer:
        await _accepts(consumer, 2)
    other = f"{apples.topic}-other"
    create_topic(apples.clusters["c2"], other, 1)
    with _member(apples, "c2", apples.group, other):
        await until(lambda: _knows(apples, "c2", apples.group, other), "the group has a member there")
        move = await apples.start("c2")
        says = f"group {apples.group!r} gets no position: 'c2' refuses it: it has members there"
        await apples.when(move.name, lambda found: says in found.problem, "names the group")
    await apples.when(move.name, lambda found: found.state == DONE, "is done")


def _side(apples: Apples, cluster: str) -> UpstreamCluster:
    return UpstreamCluster(cluster, (apples.clusters[cluster],), int(cluster[1:]))


@contextmanager
def _member(apples: Apples, cluster: str, group: str, topic: str = "") -> Iterator[ShareConsumer]:
    own = {"bootstrap.servers": apples.clusters[cluster], "group.id": group}
    consumer = ShareConsumer({**own, "share.acknowledgement.mode": "explicit"})
    consumer.subscribe([topic or apples.topic])
    try:
        yield consumer
    finally:
        consumer.close()


async def _accepts(consumer: ShareConsumer, count: int) -> None:
    read = 0

    async def all_are_read() -> bool:
        nonlocal read
        for each in await asyncio.to_thread(consumer.poll, 0.5):
            consumer.acknowledge(each)
            read += 1
        return read == count

    await until(all_are_read, f"{count} records are read", within=2 * WITHIN)
    await asyncio.to_thread(consumer.commit_sync, WITHIN)


async def _knows(apples: Apples, cluster: str, group: str, topic: str = "") -> bool:
    return group in await share_states(_side(apples, cluster), topic or apples.topic, [group])


async def test_nothing_else_may_lead_a_stitched_topic_elsewhere(apples: Apples) -> None:
    await apples.write("c1", 2, 2)
    await apples.moved("c2")
    await refused(apples.world.set(apples.topic, "c1"), STATE, "a rule would drop their parts", "--stitch")
    copying = apples.start("c1", kind=topic_moves.TOPIC_MOVE_KIND_COPY)
    await refused(copying, STATE, "leave --copy out")
    reset = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic=apples.topic)], group=replays.ReplayByGroup(group=apples.group)
    )
    started = apples.world.replays.StartReplay(replays.StartReplayRequest(spec=reset), timeout=CALL)
    await refused(started, STATE, "knows the offsets of one cluster only")


STEPS = ("topic_move_started", "topic_move_cut_begun", "rule_set_changed", "topic_move_cut_reached", "rollout_switched")


@pytest.mark.parametrize("last", STEPS)
async def test_a_control_that_stops_behind_any_event_leaves_a_move_that_the_next_control_ends(
    last: str, apples: Apples, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apples.write("c1", 5, 3)
    stopped = asyncio.Event()
    append = Journal.append

    async def append_and_stop(journal: Journal, *arguments: Any, **options: Any) -> list[events.Event]:
        new: list[events.Event] = await append(journal, *arguments, **options)
        if any(event.WhichOneof("payload") == last for event in new):
            stopped.set()
            await asyncio.get_running_loop().create_future()  # as a process that is killed there
        return new

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", append_and_stop)
        starting = asyncio.create_task(apples.start("c2"))
        async with asyncio.timeout(WITHIN):
            await stopped.wait()
        starting.cancel()
        patched.setattr(commands, "LOOK_EVERY", WITHIN)
        await apples.world.stop()
    await apples.world.start()
    apples.world.control.members.ever_reported = True
    [move] = apples.world.control.journal.view.topic_moves.newest
    done = await apples.when(move.name, lambda found: found.HasField("certificate"), "has its certificate")
    assert done.state == DONE
    assert done.certificate.confirmed, done.certificate.differences
    assert apples.parts_in_table() == [("c1", 1, [(0, 0), (0, 0)]), ("c2", 1, [(5, 5), (3, 3)])]
