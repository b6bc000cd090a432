"""What is archived comes back into a topic by the engine of copies: alone, or for what Kafka does not hold any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.orchard import MIDNIGHT, Content, Place
from tests.integration.pipeline.toolchain import need_spark

if TYPE_CHECKING:
    from services.pipeline.archives.folder import FolderArchive
    from services.pipeline.copying.tasks import Access, LaneTask
    from tests.integration.pipeline.archives import TwoDays
    from tests.integration.pipeline.copies import Copied, Grove


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    need_spark()
    from tests.integration.pipeline.copies import Grove

    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


@pytest.fixture(scope="module")
def archived(two_days: TwoDays, tmp_path_factory: pytest.TempPathFactory) -> FolderArchive:
    """A topic of three partitions, with one day compacted and the other one in small files."""
    from services.pipeline.archives.compaction import CompactionRules
    from services.pipeline.archives.folder import FolderArchive

    archive = two_days.copied_to(tmp_path_factory.mktemp("restore") / "archive")
    assert archive.compact(CompactionRules(after=timedelta(0))) == 1
    return FolderArchive(str(archive.folder))


def test_a_replay_from_a_time_that_kafka_no_longer_holds_takes_the_archive_by_itself(
    archived: FolderArchive, two_days: TwoDays, grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.pipeline.copying import replay as replaying
    from tests.integration.pipeline.copies import InThreads

    orchard = two_days.orchard

    class RetentionGoesOn(InThreads):
        """Behind the plan, and before it is read."""

        def run(self, tasks: Sequence[LaneTask], access: Access, *, dry_run: bool) -> dict[tuple[str, int], int]:
            orchard.let_retention_take(partition=0, before=75)
            return super().run(tasks, access, dry_run=dry_run)

    monkeypatch.setattr(replaying, "FIRST_PAUSE_S", 0.0)
    orchard.let_retention_take(partition=0, before=70)
    orchard.let_retention_take(partition=1, before=1)
    orchard.grow(60)  # not archived
    grove.create_target(retention_bytes="100000000")  # so that it is looked how large records are
    long_ago = replays.ReplayRange(topic=orchard.topic, start_time=at(MIDNIGHT - timedelta(days=1)))
    order = grove.order(orchard.topic, ranges=[long_ago])
    ended = grove.run(order, archive=archived, work=RetentionGoesOn())
    assert ended.state == "DONE", ended.description
    assert in_order(grove.copies(), orchard.topic) == orchard.records
    assert ended.records == len(orchard.records)


def test_a_range_of_time_is_restored_from_the_archive_alone(
    archived: FolderArchive, two_days: TwoDays, grove: Grove
) -> None:
    from tests.integration.pipeline.copies import TARGET

    grove.create_target()
    topic = two_days.orchard.topic
    since, until = MIDNIGHT + timedelta(milliseconds=61), MIDNIGHT + timedelta(milliseconds=181)
    between = replays.ReplayRange(topic=topic, start_time=at(since), end_time=at(until))
    nowhere = TARGET  # that cluster has no such topic
    order = grove.order(topic, ranges=[between], archive=replays.REPLAY_ARCHIVE_ONLY, source_cluster=nowhere)
    for _ in range(2):  # again, it finds all of it done
        ended = grove.run(order, archive=archived)
        assert ended.state == "DONE", ended.description
    expected = between_times(two_days.records, ms(since), ms(until))
    assert 0 < len(expected) < len(two_days.records)
    assert in_order(grove.copies(), topic) == expected


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
