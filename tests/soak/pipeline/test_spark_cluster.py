"""Past one machine: the same commands on a cluster of two workers, one of which is killed in mid-job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.spark_cluster import SparkCluster
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark

RECORDS = 30_000
BATCH_ROWS = 3_000
JOB_S = 300.0


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    need_spark()
    cluster = SparkCluster(tmp_path_factory.mktemp("spark") / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Job:
    """A command of the pipeline that runs on the cluster."""

    def __init__(self, cluster: SparkCluster, log: Path, *arguments: str, **settings: str) -> None:
        self._log = log
        further = {f"KAFKA_MESH_PIPELINE_{name.upper()}": value for name, value in settings.items()}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.pipeline", "run", *arguments],
                env=cluster.environment | further,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> str:
        assert self._process.wait(JOB_S) == 0, self._log.read_text()[-3000:]
        return self._log.read_text()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.timeout(900)
def test_an_archive_is_whole_when_a_worker_was_killed(
    spark_cluster: SparkCluster, kafka_c1: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    from tests.integration.pipeline.archives import read_back

    folder = tmp_path / "archive"
    orchard = Orchard(kafka_c1.bootstrap, topic)
    orchard.create()
    orchard.grow(RECORDS)
    to = ["archive", topic, "--to", str(folder), "--bootstrap", kafka_c1.bootstrap]
    job = Job(spark_cluster, tmp_path / "job.log", *to, max_batch_rows=str(BATCH_ROWS))

    def is_amid() -> bool:
        assert job.is_running(), (tmp_path / "job.log").read_text()[-3000:]
        return len(list(folder.glob("_checkpoint/commits/[0-9]*"))) >= 2

    try:
        wait_until(is_amid, "two batches are written", JOB_S)
        assert spark_cluster.is_working(0) and spark_cluster.is_working(1)
        spark_cluster.kill_worker(1)
        assert f"{RECORDS} records" in job.finish()
        assert read_back(folder) == orchard.records
    finally:
        job.end()
        orchard.clear()
