"""Copies of records between real clusters: what is kept, what is refused, what is never written twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from google.protobuf.timestamp_pb2 import Timestamp
from kafka.partitioner.default import murmur2

from mesh.rpc import record_rules, replays
from services.pipeline.copying import replay as replaying
from services.pipeline.copying.errors import SetbackError
from services.pipeline.copying.planner import Drawing
from services.pipeline.copying.tasks import Access, LaneTask
from services.pipeline.copying.transactions import copy_lane
from services.pipeline.driver_protocol.orders import Order
from services.pipeline.kafka.positions import Place
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.copies import (
    SLOTS,
    SOURCE,
    TARGET,
    Copied,
    Grove,
    InThreads,
    by_place,
    log_ends,
    originals,
)
from tests.integration.pipeline.orchard import MIDNIGHT, TIMEOUT_S, Content, Orchard

STALLED_S = 6.0
"""More than a busy broker takes to give the records in front of an open transaction."""


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


def offset_of(copy: Copied) -> int:
    return int((copy.header("mesh-replay-source") or b"").rpartition(b"/")[2])


def test_copies_are_as_their_originals_and_a_replay_that_is_started_again_copies_nothing(
    grove: Grove, orchard: Orchard
) -> None:
    orchard.create()
    orchard.transaction(20).abort_transaction()  # offsets without records
    orchard.grow(300)
    orchard.let_retention_take(partition=1, before=7)
    for place in [each for each in orchard.records if each.partition == 1 and each.offset < 7]:
        del orchard.records[place]
    grove.create_target()
    order = grove.order(orchard.topic)
    ended = grove.run(order)
    assert (ended.state, ended.records) == ("DONE", 293), ended.description
    copies = grove.copies()
    assert by_place(copies) == originals(orchard)
    for partition in range(3):
        offsets = [offset_of(copy) for copy in copies if copy.partition == partition]
        assert offsets == sorted(offsets) == sorted(p.offset for p in orchard.records if p.partition == partition)

    orchard.grow(30)  # behind the end, which is where it was
    again = grove.run(order)
    assert (again.state, again.records) == ("DONE", 293)
    assert len(grove.copies()) == 293

    part = [replays.ReplayRange(topic=orchard.topic, partition=0)]
    other = grove.run(grove.order(orchard.topic, ranges=part))
    assert other.state == "FAILED"
    assert f"keeps how far another copy of {orchard.topic} is" in other.description
    grove.clear()
    grove.create_target()
    assert grove.run(order).state == "FAILED", "what was copied is not in this one"
    assert grove.copies() == []


def test_a_range_of_time_is_filtered_changed_and_retimed(grove: Grove, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(200)  # odd ones are of yesterday, the others of today
    grove.create_target()
    today = Timestamp()
    today.FromDatetime(MIDNIGHT)
    ended = grove.run(
        grove.order(
            orchard.topic,
            ranges=[replays.ReplayRange(topic=orchard.topic, start_time=today, partition=each) for each in (0, 2)],
            filter="'n' in headers",
            transforms=[record_rules.Transform(drop_header="none")],
            timestamps=replays.REPLAY_TIMESTAMPS_NOW,
        )
    )
    assert ended.state == "DONE", ended.description
    first = {p: min(o.offset for o, c in orchard.records.items() if o.partition == p and is_today(c)) for p in (0, 2)}
    expected = {
        place: content
        for place, content in originals(orchard, 0, 2).items()
        if content.headers and int(place.rpartition(b"/")[2]) >= first[int(place.split(b"/")[-2])]
    }
    copies = grove.copies()
    assert {copy.header("mesh-replay-source"): int(copy.header("mesh-replay-timestamp") or 0) for copy in copies} == {
        place: content.timestamp_ms for place, content in expected.items()
    }
    assert not any(copy.header("none") for copy in copies)
    assert all(copy.content.timestamp_ms not in {each.timestamp_ms for each in expected.values()} for copy in copies)


def is_today(content: Content) -> bool:
    return content.timestamp_ms >= MIDNIGHT.timestamp() * 1000


def test_by_key_partitions_are_those_that_kafkas_clients_choose(grove: Grove, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(120)
    grove.create_target(partitions=5)
    producer = Producer({"bootstrap.servers": grove.clusters[SOURCE]["bootstrap.servers"]})
    producer.produce(orchard.topic, b"value", b"", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert grove.run(grove.order(orchard.topic, partitioning=replays.REPLAY_PARTITIONING_BY_KEY)).state == "DONE"
    copies = grove.copies()
    assert len(copies) == 121
    for copy in copies:
        source = int((copy.header("mesh-replay-source") or b"").split(b"/")[-2])
        key = copy.content.key
        assert copy.partition == (source % 5 if key is None else (murmur2(key) & 0x7FFFFFFF) % 5)


def test_what_the_target_would_not_keep_is_refused_before_anything_is_written(grove: Grove, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(30)
    short, few, compact = f"{grove.target}-short", f"{grove.target}-few", f"{grove.target}-compact"
    grove.create_target(topic=short, retention_ms="60000")
    grove.create_target(topic=few, partitions=2)
    grove.create_target(topic=compact, cleanup_policy="compact")
    said = {
        topic: grove.run(grove.order(orchard.topic, topic=topic, group=topic)) for topic in (short, few, compact, "no")
    }
    assert {each.state for each in said.values()} == {"FAILED"}
    assert "are older than the target keeps (retention.ms=60000)" in said[short].description
    assert "partition 2 is copied, the target has 2 partitions" in said[few].description
    assert "keeps only the last record of each key" in said[compact].description
    assert said["no"].description == f"topic no is not on cluster '{TARGET}'; create it, or name another one"
    assert grove.copies(short) == grove.copies(few) == grove.copies(compact) == []

    now = replays.REPLAY_TIMESTAMPS_NOW
    assert grove.run(grove.order(orchard.topic, topic=short, group=short, timestamps=now)).state == "DONE"
    assert len(grove.copies(short)) == 30


def test_a_dry_run_counts_what_would_be_copied_and_writes_nothing(grove: Grove, orchard: Orchard) -> None:
    orchard.create()
    orchard.transaction(20, partition=0).abort_transaction()
    orchard.grow(90)
    grove.create_target()
    ended = grove.run(grove.order(orchard.topic, filter="'n' in headers", dry_run=True))
    assert ended.state == "DONE", ended.description
    planned = {place: each.planned for place, each in ended.partitions.items()}
    with_headers = [place for place, content in orchard.records.items() if content.headers]
    assert planned == {
        (orchard.topic, partition): sum(place.partition == partition for place in with_headers)
        for partition in range(3)
    }
    assert set(log_ends(grove.clusters[TARGET], grove.target).values()) == {0}


def test_an_open_transaction_ends_the_plan_and_one_in_its_midst_is_told_of(grove: Grove, orchard: Orchard) -> None:
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    open_ = orchard.transaction(5)
    grove.create_target(partitions=1)
    ended = grove.run(grove.order(orchard.topic))
    assert (ended.state, ended.records) == ("DONE", 10)

    ranges = [replays.ReplayRange(topic=orchard.topic, partition=0, start_offset=8, end_offset=14)]
    stuck = grove.run(grove.order(orchard.topic, ranges=ranges, group=f"{grove.name}-second"), stall_s=STALLED_S)
    assert stuck.state == "FAILED"
    assert f"{orchard.topic}/0 stands at offset 10 of 14" in stuck.description
    open_.abort_transaction()


def test_a_record_that_is_too_large_ends_the_replay_in_front_of_it(grove: Grove, orchard: Orchard) -> None:
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    producer = Producer({"bootstrap.servers": grove.clusters[SOURCE]["bootstrap.servers"]})
    producer.produce(orchard.topic, bytes(range(256)) * 200, b"large", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    grove.create_target(partitions=1, max_message_bytes="20000", compression_type="uncompressed")
    grove.clusters[TARGET]["compression.type"] = "none"
    ended = grove.run(grove.order(orchard.topic))
    assert ended.state == "FAILED"
    assert f"{orchard.topic}/0 offset 10 is refused by {TARGET}/{grove.target}" in ended.description
    assert "Message size too large (a value of 51200 bytes)" in ended.description
    assert "raise max.message.bytes" in ended.description
    assert grove.copies() == []


class CreatedAgain(InThreads):
    """The source becomes another topic between plan and copy."""

    def __init__(self, orchard: Orchard) -> None:
        self._orchard = orchard

    def run(self, tasks: Sequence[LaneTask], access: Access, *, dry_run: bool) -> dict[Place, int]:
        self._orchard.delete()
        self._orchard.create(partitions=1)
        self._orchard.grow(30, partitions=(0,))
        return super().run(tasks, access, dry_run=dry_run)


def test_a_source_that_was_created_again_is_an_error_and_nothing_of_it_is_copied(
    grove: Grove, orchard: Orchard
) -> None:
    orchard.create(partitions=1)
    orchard.grow(30, partitions=(0,))
    grove.create_target(partitions=1)
    order = grove.order(orchard.topic)
    for work in (CreatedAgain(orchard), InThreads()):
        ended = grove.run(order, work=work)
        assert ended.state == "FAILED"
        assert f"topic {orchard.topic} on cluster '{SOURCE}' was deleted and created again" in ended.description
    assert grove.copies() == []


class WithZombies(InThreads):
    """Each task runs three times at once, as a scheduler that has lost sight of two of them would have it."""

    def run(self, tasks: Sequence[LaneTask], access: Access, *, dry_run: bool) -> dict[Place, int]:
        def attempt(task: LaneTask) -> SetbackError | None:
            try:
                copy_lane(task, access)
            except SetbackError as error:
                return error
            return None

        with ThreadPoolExecutor(3 * SLOTS) as pool:
            fenced = [each for each in pool.map(attempt, [task for task in tasks for _ in range(3)]) if each]
        if fenced:
            raise fenced[0]
        return {}


def test_zombies_are_fenced(grove: Grove, orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "FIRST_PAUSE_S", 0.1)
    orchard.create()
    orchard.grow(3_000)
    grove.create_target()
    ended = grove.run(grove.order(orchard.topic, rate=3_000.0), work=WithZombies())
    assert (ended.state, ended.records) == ("DONE", 3_000), ended.description
    assert by_place(grove.copies()) == originals(orchard)


def test_a_group_that_has_forgotten_is_no_reason_to_begin_anew(grove: Grove, orchard: Orchard) -> None:
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    grove.create_target(partitions=1)
    order = grove.order(orchard.topic)
    order.replay.partitions.add(topic=orchard.topic, partition=0, start_offset=0, end_offset=10, position=4)
    ended = grove.run(order)
    assert ended.state == "FAILED"
    assert f"has forgotten how far {orchard.topic}/0 is" in ended.description
    assert grove.copies() == []


def left_open(grove: Grove, order: Order) -> list[Producer]:
    """As a driver leaves it that is killed: the plan is written, and each lane has a transaction open."""
    plan = Drawing(order.replay, grove.clusters, None, InThreads().slots, TIMEOUT_S).draw()
    producers = []
    for (_, partition), part in plan.parts.items():
        lane = {"transactional.id": f"{order.replay.spec.topic.group}.lane-{part.note.lane}"}
        producer = Producer({"bootstrap.servers": grove.clusters[TARGET]["bootstrap.servers"], **lane})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(grove.target, b"of no one", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        producers.append(producer)
    return producers


def test_what_a_killed_driver_left_open_is_put_away_by_one_that_only_cancels(grove: Grove, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(30)
    grove.create_target()
    order = grove.order(orchard.topic)
    order.replay.cancelling = True
    assert grove.run(order).state == "CANCELLED"  # it had not begun at all

    _producers = left_open(grove, order)
    assert set(log_ends(grove.clusters[TARGET], grove.target, committed=True).values()) == {0}
    assert set(log_ends(grove.clusters[TARGET], grove.target).values()) == {1}
    ended = grove.run(order)
    assert (ended.state, ended.records) == ("CANCELLED", 0), ended.description
    assert grove.copies() == []
