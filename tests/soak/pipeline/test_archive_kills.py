"""The archive job is killed with all its processes, in mid-write and right after a batch: no record lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark

RECORDS = 60_000
BATCH_ROWS = 3_000  # 20 batches
START_S = 120.0
STOP_S = 60.0


class Job:
    """`kafka-mesh pipeline run archive` as a process group of its own."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self._folder = folder
        self._log = folder.with_suffix(".log")
        command = [sys.executable, "-m", "services.pipeline", "run", "archive", topic]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--to", str(folder), "--bootstrap", bootstrap],
                env=os.environ | {"KAFKA_MESH_PIPELINE_MAX_BATCH_ROWS": str(BATCH_ROWS)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_when(self, moment: Callable[[], bool], what: str) -> None:
        def is_now() -> bool:
            assert self._process.poll() is None, f"ended by itself:\n{self._log.read_text()[-3000:]}"
            return moment()

        try:
            wait_until(is_now, what, START_S)
        finally:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)

    def finish(self) -> None:
        assert self._process.wait(START_S + STOP_S) == 0, self._log.read_text()[-3000:]


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
        return any(folder.glob(".spark-staging-*/**/*.parquet")) and written() > before

    def has_written() -> bool:
        return written() > before

    try:
        for moment, what in [(is_writing, "mid-write"), (has_written, "a batch is written")] * 3:
            before = written()
            for left in folder.glob(".spark-staging-*"):
                left.rename(folder.parent / f"{left.name}-{before}")
            Job(kafka_c1.bootstrap, topic, folder).kill_when(moment, what)
            orchard.grow(1_000)
        Job(kafka_c1.bootstrap, topic, folder).finish()
        assert read_back(folder) == orchard.records
    finally:
        orchard.clear()
