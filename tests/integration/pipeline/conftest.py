"""One Spark session for this folder, a real cluster to read from, and a folder to read back as any program would."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.session import start_session
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import QUICK_JVM, QUICK_SPARK, need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.pipeline.archives import Archive, TwoDays
    from tests.integration.pipeline.audits import AuditRuns


@pytest.fixture(scope="module", autouse=True)
def no_client_outlives_its_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Errors hold frames with clients of Kafka, and so does pytest with what it gave to the last test; those would
    complain when the brokers are gone, hundreds of times, behind whatever else there is to read.
    """
    yield
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path and item.funcargs:
            item.funcargs.clear()
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # of the last test, where it has failed
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """What else the tests need starts beside it, and ends behind it."""
    need_spark()
    settings = PipelineSettings(master="local[2]", driver_java_options=QUICK_JVM, spark_properties=QUICK_SPARK)
    with ThreadPoolExecutor(1, "session") as beside, ExitStack() as started:
        starting = beside.submit(start_session, settings, "tests")
        started.callback(lambda: starting.result().stop())
        for name in ("kafka_c1", "kafka_c2", "postgres"):
            request.getfixturevalue(name)
        yield starting.result()


@pytest.fixture
def orchard(kafka_c1: KafkaCluster, topic: str) -> Iterator[Orchard]:
    orchard = Orchard(kafka_c1.bootstrap, topic)
    yield orchard
    orchard.clear()


@pytest.fixture
def archive(spark: SparkSession, kafka_c1: KafkaCluster, tmp_path: Path) -> Archive:
    from tests.integration.pipeline.archives import Archive

    return Archive(spark, kafka_c1.bootstrap, tmp_path / "archive")


@pytest.fixture(scope="session")
def two_days(
    spark: SparkSession, kafka_c1: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoDays]:
    """Archived once, for all who compact and restore."""
    from tests.integration.pipeline.archives import Archive, TwoDays

    orchard = Orchard(kafka_c1.bootstrap, f"two-days-{uuid4().hex[:8]}")
    archive = Archive(spark, kafka_c1.bootstrap, tmp_path_factory.mktemp("two-days") / "archive")
    orchard.create()
    orchard.grow(240)
    archive.run(orchard.topic, max_batch_rows=80)
    yield TwoDays(orchard, dict(orchard.records), archive)
    orchard.clear()


@pytest.fixture(scope="session")
def audit_database(postgres: PostgresServer) -> str:
    return postgres.migrated()


@pytest.fixture
def audits(
    spark: SparkSession,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    audit_database: str,
    tmp_path: Path,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[AuditRuns]:
    from services.pipeline.auditing import streams as following
    from tests.integration.pipeline.audits import AuditRuns

    monkeypatch.setattr(following, "POLL_S", 0.1)
    bootstraps = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    runs = AuditRuns(spark, bootstraps, audit_database, tmp_path / "audit", unique_name("audit"))
    with runs.database.connect() as connection:
        for table in (b"audit_events", b"audit_progress", b"audit_sources"):
            connection.execute(b"truncate " + table)
    yield runs
    runs.clear()
