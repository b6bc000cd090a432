"""One Spark session for this folder, a real cluster to read from, and a folder to read back as any program would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.pipeline.session import start_session
from services.pipeline.settings import PipelineSettings
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import QUICK_JVM, need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.pipeline.archives import Archive


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    need_spark()
    session = start_session(PipelineSettings(master="local[2]", driver_java_options=QUICK_JVM), "tests")
    yield session
    session.stop()


@pytest.fixture
def orchard(kafka_c1: KafkaCluster, topic: str) -> Iterator[Orchard]:
    orchard = Orchard(kafka_c1.bootstrap, topic)
    yield orchard
    orchard.clear()


@pytest.fixture
def archive(spark: SparkSession, kafka_c1: KafkaCluster, tmp_path: Path) -> Archive:
    from tests.integration.pipeline.archives import Archive

    return Archive(spark, kafka_c1.bootstrap, tmp_path / "archive")
