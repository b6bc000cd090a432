"""One mesh for these tests, with a pipeline, as `make run` starts it where Spark can run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.layout import STATE_FOLDER
from tests.e2e.pipeline.archivist import PARTITIONS
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.record_rules import Side
from tests.integration.pipeline.conftest import no_client_outlives_its_cluster
from tests.integration.pipeline.toolchain import QUICK_JVM, need_spark

__all__ = ["no_client_outlives_its_cluster", "sides", "spark_mesh"]


@pytest.fixture(scope="session")
def spark_mesh(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Its gateway audits the topics that the example's rules send to c1."""
    need_spark()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KAFKA_MESH_PIPELINE_DRIVER_JAVA_OPTIONS", QUICK_JVM)
        environment.setenv("KAFKA_MESH_PIPELINE_TRIGGER_INTERVAL_S", "1")
        environment.setenv("KAFKA_MESH_GATEWAY_AUDIT_TOPICS", "apples*")
        with running_mesh(tmp_path_factory.mktemp("spark-mesh") / STATE_FOLDER, "--pipeline", formatted=True) as mesh:
            yield mesh


@pytest.fixture
def sides(spark_mesh: Mesh, apples: str) -> Iterator[dict[str, Side]]:
    """The topic is on both clusters, and lives on c1."""
    made = {name: Side(name, spark_mesh.cluster(name)) for name in ("c1", "c2")}
    try:
        for side in made.values():
            side.create(apples, PARTITIONS)
        spark_mesh.meshctl("rule", "set", "--topic", apples, "--to", "c1", "--first")
        yield made
    finally:
        for side in made.values():
            side.clean()
