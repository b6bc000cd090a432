"""The archive job is killed with all its processes, in mid-write and right after a batch: no record lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.killed_jobs import KilledJob, has_any

RECORDS = 60_000
BATCH_ROWS = "3000"  # 20 batches


@pytest.mark.timeout(1_200)
def test_killed_in_mid_write_and_between_batches(kafka_c1: KafkaCluster, topic: str, tmp_path: Path) -> None:
    need_spark()
    from tests.integration.pipeline.archives import read_back

    folder = tmp_path / "archive"
    commits = folder / "_checkpoint" / "commits"
    orchard = Orchard(kafka_c1.bootstrap, topic)
    orchard.create()
    orchard.grow(RECORDS)

    def written() -> int:
        return len([each for each in commits.glob("*") if each.name.isdecimal()])

    def is_writing() -> bool:
        return has_any(folder, "_staged/**/*.parquet") and written() > before

    def has_written() -> bool:
        return written() > before

    def job() -> KilledJob:
        arguments = ("archive", topic, "--to", str(folder), "--bootstrap", kafka_c1.bootstrap)
        return KilledJob(folder.with_suffix(".log"), *arguments, MAX_BATCH_ROWS=BATCH_ROWS)

    try:
        for moment, what in [(is_writing, "mid-write"), (has_written, "a batch is written")] * 3:
            before = written()
            job().kill_when(moment, what)
            orchard.grow(1_000)
        job().finish()
        assert read_back(folder) == orchard.records
    finally:
        orchard.clear()
