"""`kafka-mesh pipeline run archive`, as a person types it: topics of two clusters, through the one address."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.meshes import BIN, Mesh
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import QUICK_JVM

RUN_S = 180.0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_topics_of_two_clusters_in_one_archive(spark_mesh: Mesh, apples: str, bananas: str, tmp_path: Path) -> None:
    from tests.integration.pipeline.archives import read_back

    orchard = Orchard(spark_mesh.gateway, apples)
    folder = tmp_path / "fruit"
    try:
        orchard.create(apples)
        orchard.create(bananas)
        orchard.grow(300)
        orchard.grow(300, topic=bananas)
        assert f"600 records of {apples}, {bananas} to {folder}" in archive(spark_mesh, folder, apples, bananas)
        assert read_back(folder) == orchard.records
    finally:
        orchard.clear()


def archive(mesh: Mesh, folder: Path, *topics: str) -> str:
    """What the command prints; it finds the mesh by itself."""
    command = [str(BIN / "kafka-mesh"), "pipeline", "run", "archive", *topics, "--to", str(folder)]
    settings = {"KAFKA_MESH_STATE_DIR": str(mesh.state), "KAFKA_MESH_PIPELINE_DRIVER_JAVA_OPTIONS": QUICK_JVM}
    run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout
