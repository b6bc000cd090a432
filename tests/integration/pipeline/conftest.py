"""One Spark session for this folder, a real cluster to read from, and a folder to read back as any program would."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.pipeline.session import SessionError, check_java, start_session
from services.pipeline.settings import PipelineSettings
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.toolchains import do_without
from tests.integration.pipeline.orchard import Orchard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.pipeline.archives import Archive

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for the seconds that a test lasts


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if find_spec("pyspark") is None:
        pytest.skip("the extra `pipeline` is not installed (make env PIPELINE=1)")
    try:
        check_java()
    except SessionError as error:
        do_without(str(error))
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
