"""A topic goes into the archive, is compacted and comes back, and whoever does it is killed with all its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.orchard import MIDNIGHT, Content, Orchard, Place
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.killed_jobs import KilledJob, has_any

if TYPE_CHECKING:
    from tests.integration.pipeline.copies import Copied, Grove

RECORDS = 30_000  # 10 batches
MORE = 1_000  # after each kill
BATCH_ROWS = "3000"
RATE = "3000"  # records a second: a restore lasts long enough to be killed in it
YESTERDAY = (MIDNIGHT - timedelta(days=1)).date().isoformat()


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    need_spark()
    from tests.integration.pipeline.copies import Grove

    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


@pytest.mark.timeout(3_000)
def test_archive_compaction_and_restore_are_killed_twice_each(
    grove: Grove, kafka_c1: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    folder, log = tmp_path / "archive", tmp_path / "jobs.log"
    orchard = Orchard(kafka_c1.bootstrap, topic)
    orchard.create()
    try:
        orchard.grow(RECORDS)
        kill_archiving(folder, log, orchard, kafka_c1.bootstrap)
        kill_restoring(folder, log, orchard, grove)
    finally:
        orchard.clear()


def kill_archiving(folder: Path, log: Path, orchard: Orchard, bootstrap: str) -> None:
    from tests.integration.pipeline.archives import read_back, read_by_the_reader

    arguments = ("archive", orchard.topic, "--to", str(folder), "--bootstrap", bootstrap, "--compact")
    settings = {"MAX_BATCH_ROWS": BATCH_ROWS, "COMPACT_AFTER_S": "0"}

    def is_writing(before: int) -> bool:
        return has_any(folder, "_staged/**/*.parquet") and commits(folder) > before

    def is_staging(_: int) -> bool:
        return has_any(folder, "_compaction/*/*/staged/**/*.parquet")

    def is_replacing(_: int) -> bool:
        return has_any(folder, "_compaction/*/*/plan.json")

    moments: list[Callable[[int], bool]] = [is_writing, is_writing, is_staging, is_replacing]
    for moment in moments:
        before = commits(folder)
        KilledJob(log, *arguments, **settings).kill_when(lambda: moment(before), moment.__name__)  # noqa: B023
        visible = read_back(folder)
        assert visible.items() <= orchard.records.items()
        known = read_by_the_reader(folder)
        print(f"killed when {moment.__name__}: {len(visible)} visible, {len(known)} by the plans")
        assert known.items() <= orchard.records.items()
        if moment in (is_staging, is_replacing):
            assert known == orchard.records, "all was archived before it was compacted"
        if moment is not is_staging:
            orchard.grow(MORE)
    KilledJob(log, *arguments, **settings).finish()
    assert read_back(folder) == read_by_the_reader(folder) == orchard.records
    files = list(folder.glob(f"day={YESTERDAY}/batch=*/*.parquet"))
    print(f"{len(orchard.records)} records archived, of the finished day in {len(files)} files")


def kill_restoring(folder: Path, log: Path, orchard: Orchard, grove: Grove) -> None:
    from tests.integration.pipeline.copies import TARGET, log_ends

    grove.create_target()
    target = grove.clusters[TARGET]
    arguments = ("restore", orchard.topic, "--from", str(folder), "--to", grove.target, "--rate", RATE)
    cluster = ("--cluster", f"{TARGET}={target['bootstrap.servers']}", "--group", grove.name)

    def written() -> int:
        return sum(log_ends(target, grove.target).values())

    for _ in range(2):
        before = written()
        KilledJob(log, *arguments, *cluster).kill_when(lambda: written() > before + MORE, "more is written")  # noqa: B023
        print(f"restore killed with {written()} offsets written")
    KilledJob(log, *arguments, *cluster).finish()
    copies = grove.copies()
    assert in_order(copies) == orchard.records
    print(f"{len(copies)} records restored, once and in order")


def commits(folder: Path) -> int:
    return len([each for each in (folder / "_checkpoint" / "commits").glob("*") if each.name.isdecimal()])


def in_order(copies: list[Copied]) -> dict[Place, Content]:
    """By the places of their originals; each once, and in their order."""
    found: dict[Place, Content] = {}
    reached: dict[int, int] = {}
    for each in copies:
        _cluster, topic, partition, offset = (each.header("mesh-replay-source") or b"").decode().split("/")
        place = Place(topic, int(partition), int(offset))
        assert place.partition == each.partition
        assert place.offset > reached.get(place.partition, -1), f"{place} comes late, or twice"
        reached[place.partition] = place.offset
        found[place] = each.original
    return found
