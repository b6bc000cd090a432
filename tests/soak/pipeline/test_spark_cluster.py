"""Past one machine: the same commands on a cluster of two workers, one of which is killed in mid-job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.running import running
from tests.fixtures.spark_cluster import SparkCluster
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.copies import TARGET, Grove, log_ends
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.audit_topics import AuditTopic

RECORDS = 12_000
BATCH_ROWS = 3_000
RATE = 1_000  # records a second of a copy: it is to be in its midst when a worker is killed
JOB_S = 1_500.0


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    need_spark()
    with running(SparkCluster(tmp_path_factory.mktemp("spark") / "cluster")) as cluster:
        yield cluster


@pytest.fixture
def spark_cluster(started: SparkCluster) -> SparkCluster:
    """With both workers, also after a test that killed one."""
    started.start()
    return started


class Job:
    """A command of the pipeline that runs on the cluster."""

    def __init__(self, cluster: SparkCluster, log: Path, *arguments: str, **settings: str) -> None:
        self._cluster, self._log = cluster, log
        further = {f"KAFKA_MESH_PIPELINE_{name.upper()}": value for name, value in settings.items()}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.pipeline", "run", *arguments],
                env=cluster.environment | further,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def lose_a_worker_when(self, moment: Callable[[], bool], what: str) -> None:
        def is_now() -> bool:
            assert self._process.poll() is None, f"ended by itself:\n{self._log.read_text()[-3000:]}"
            return moment()

        wait_until(is_now, what, JOB_S)
        assert self._cluster.is_working(0) and self._cluster.is_working(1)
        self._cluster.kill_worker(1)

    def finish(self) -> str:
        assert self._process.wait(JOB_S) == 0, self._log.read_text()[-3000:]
        return self._log.read_text()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def orchard(kafka_c1: KafkaCluster, topic: str) -> Iterator[Orchard]:
    made = Orchard(kafka_c1.bootstrap, topic)
    made.create()
    yield made
    made.clear()


@pytest.mark.timeout(4_000)
def test_an_archive_is_whole(
    spark_cluster: SparkCluster, kafka_c1: KafkaCluster, orchard: Orchard, tmp_path: Path
) -> None:
    from tests.integration.pipeline.archives import read_back

    folder = tmp_path / "archive"
    orchard.grow(RECORDS)
    to = ["archive", orchard.topic, "--to", str(folder), "--bootstrap", kafka_c1.bootstrap]
    job = Job(spark_cluster, tmp_path / "job.log", *to, max_batch_rows=str(BATCH_ROWS))
    try:
        batches = folder / "_checkpoint" / "commits"
        job.lose_a_worker_when(lambda: len(list(batches.glob("[0-9]*"))) >= 2, "two batches are written")
        assert f"{RECORDS} records" in job.finish()
        assert read_back(folder) == orchard.records
    finally:
        job.end()


@pytest.mark.timeout(4_000)
def test_a_copy_has_each_record_once(
    spark_cluster: SparkCluster, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, orchard: Orchard, tmp_path: Path
) -> None:
    orchard.grow(RECORDS)
    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, orchard.topic)
    grove.create_target()
    clusters = ["--cluster", f"c1={kafka_c1.bootstrap}", "--cluster", f"c2={kafka_c2.bootstrap}"]
    copy = ["replay", "--from", orchard.topic, "--to", grove.target, "--source-cluster", "c1", "--target-cluster", "c2"]
    job = Job(spark_cluster, tmp_path / "job.log", *copy, *clusters, "--rate", str(RATE))

    def copied() -> int:
        return sum(log_ends(grove.clusters[TARGET], grove.target).values())

    try:
        job.lose_a_worker_when(lambda: copied() > RECORDS // 5, "a part is copied")
        job.finish()
        originals = {
            f"c1/{place.topic}/{place.partition}/{place.offset}".encode(): content
            for place, content in orchard.records.items()
        }
        copies = grove.copies()
        assert len(copies) == RECORDS
        assert {copy.header("mesh-replay-source"): copy.original for copy in copies} == originals
    finally:
        job.end()
        grove.clear()


@pytest.mark.timeout(4_000)
def test_audit_events_are_there_once(
    spark_cluster: SparkCluster, kafka_c1: KafkaCluster, topic: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    import pyarrow.dataset

    database = postgres()
    migrate(database)
    events = AuditTopic(kafka_c1.bootstrap, topic)
    events.tell(RECORDS)
    folder = tmp_path / "audit"
    job = Job(
        spark_cluster, tmp_path / "job.log", "audit", "--to", str(folder), "--cluster", f"c1={kafka_c1.bootstrap}",
        max_batch_rows=str(BATCH_ROWS), database_url=database, audit_topics=topic, audit_kept_days="3650",
        audit_home_topics=f"{topic}-own", audit_calls_topic=f"{topic}-calls",  # and not those of a mesh that is there
    )  # fmt: skip
    try:
        with psycopg.connect(database, autocommit=True) as connection:

            def stored() -> int:
                row = connection.execute("select count(*) from audit_events").fetchone()
                return int(row[0]) if row else 0

            job.lose_a_worker_when(lambda: stored() > RECORDS // 5, "a part is stored")
            job.finish()
            assert stored() == RECORDS
        files = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
        read = files.to_table(columns=["source_partition", "source_offset"]).to_pylist()
        assert len(read) == RECORDS
        assert {(row["source_partition"], row["source_offset"]) for row in read} == events.places()
    finally:
        job.end()
        events.clear()
