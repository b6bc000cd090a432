"""What is archived comes back into a topic by the engine of copies: alone, or for what Kafka does not hold any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.orchard import MIDNIGHT, Content, Orchard, Place
from tests.integration.pipeline.toolchain import need_spark

if TYPE_CHECKING:
    from services.pipeline.archives.folder import FolderArchive
    from tests.integration.pipeline.archives import Archive
    from tests.integration.pipeline.copies import Copied, Grove

RECORDS = 240


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    need_spark()
    from tests.integration.pipeline.copies import Grove

    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


@pytest.fixture
def archived(archive: Archive, orchard: Orchard) -> FolderArchive:
    """A topic of three partitions, with one day compacted and the other one in small files."""
    from services.pipeline.archives.compaction import CompactionRules
    from services.pipeline.archives.folder import FolderArchive

    orchard.create()
    orchard.grow(RECORDS)
    archive.run(orchard.topic, max_batch_rows=120, rules=CompactionRules(after=timedelta(0)))
    return FolderArchive(str(archive.folder))


def test_a_replay_from_a_time_that_kafka_no_longer_holds_takes_the_archive_by_itself(
    archived: FolderArchive, orchard: Orchard, grove: Grove
) -> None:
    orchard.let_retention_take(partition=0, before=70)
    orchard.let_retention_take(partition=1, before=1)
    orchard.grow(60)  # not archived
    grove.create_target()
    long_ago = replays.ReplayRange(topic=orchard.topic, start_time=at(MIDNIGHT - timedelta(days=1)))
    ended = grove.run(grove.order(orchard.topic, ranges=[long_ago]), archive=archived)
    assert ended.state == "DONE", ended.description
    assert in_order(grove.copies(), orchard.topic) == orchard.records
    assert ended.records == RECORDS + 60


def test_a_range_of_time_is_restored_from_the_archive_alone(
    archived: FolderArchive, orchard: Orchard, grove: Grove
) -> None:
    orchard.delete()
    grove.create_target()
    since, until = MIDNIGHT + timedelta(milliseconds=61), MIDNIGHT + timedelta(milliseconds=181)
    between = replays.ReplayRange(topic=orchard.topic, start_time=at(since), end_time=at(until))
    order = grove.order(orchard.topic, ranges=[between], archive=replays.REPLAY_ARCHIVE_ONLY)
    for _ in range(2):  # again, it finds all of it done
        ended = grove.run(order, archive=archived)
        assert ended.state == "DONE", ended.description
    expected = between_times(orchard.records, ms(since), ms(until))
    assert 0 < len(expected) < RECORDS
    assert in_order(grove.copies(), orchard.topic) == expected
    orchard.create()  # what the fixture clears


def at(time: object) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(time)  # type: ignore[arg-type]
    return timestamp


def ms(time: object) -> int:
    return int(time.timestamp() * 1000)  # type: ignore[attr-defined]


def between_times(records: Mapping[Place, Content], since: int, until: int) -> dict[Place, Content]:
    """As Kafka counts: from the first offset that is not older than `since` up to the first not older than `until`."""

    def first(partition: int, time: int) -> int:
        later = [place.offset for place, each in records.items() if place.partition == partition]
        return min(
            (
                place.offset
                for place, each in records.items()
                if place.partition == partition and each.timestamp_ms >= time
            ),
            default=max(later) + 1,
        )

    bounds = {partition: (first(partition, since), first(partition, until)) for partition in range(3)}
    return {place: each for place, each in records.items() if place.offset in range(*bounds[place.partition])}


def in_order(copies: list[Copied], topic: str) -> dict[Place, Content]:
    """By the places of their originals; each once, and in their order."""
    found: dict[Place, Content] = {}
    for each in copies:
        _cluster, of_topic, partition, offset = (each.header("mesh-replay-source") or b"").decode().split("/")
        place = Place(of_topic, int(partition), int(offset))
        assert of_topic == topic
        assert place.partition == each.partition
        assert place not in found
        assert place.offset > max((known.offset for known in found if known.partition == place.partition), default=-1)
        found[place] = each.original
    return found
