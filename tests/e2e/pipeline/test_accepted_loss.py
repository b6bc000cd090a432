"""A pipeline's archive that lost records to retention: control shows it, an operator accepts it with meshctl, and the
archive goes on without being started again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pipeline.archivist import archiving
from tests.fixtures.meshes import Mesh
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Orchard

WITHIN_S = 180.0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_operator_accepts_a_loss_and_serve_goes_on(spark_mesh: Mesh, apples: str, tmp_path: Path) -> None:
    from tests.integration.pipeline.archives import read_back

    folder = tmp_path / "archive"
    orchard = Orchard(spark_mesh.cluster("c1"), apples)
    try:
        orchard.create(partitions=1)
        orchard.grow(10, partitions=(0,))
        with archiving(spark_mesh, folder, apples):
            wait_until((folder / "_checkpoint" / "commits" / "0").exists, "the first batch is archived", WITHIN_S)
        orchard.grow(10, partitions=(0,))
        orchard.let_retention_take(partition=0, before=13)
        with archiving(spark_mesh, folder, apples) as serve:
            wait_until(lambda: apples in apart(spark_mesh), "control shows the topic that is set apart", WITHIN_S)
            shown = spark_mesh.meshctl("jobs", "list").stdout
            assert f"archive sets {apples} apart: {apples}/0 begins at offset 13, the checkpoint stands at 10" in shown
            assert f"to go on without what is lost: meshctl jobs accept-loss archive {apples}" in shown

            said = spark_mesh.meshctl("jobs", "accept-loss", "archive", apples, "--reason", "the disk was full").stdout
            text = f"goes on without what retention took: {apples}/0 offsets 10 to 12"
            what = f"go on in {apples} without what job archive has lost of it"
            assert said == f"pipeline archivist: {what}: done, {text}\n"
            kept = {place: each for place, each in orchard.records.items() if not 10 <= place.offset < 13}
            assert read_back(folder) == kept
            wait_until(lambda: not apart(spark_mesh), "nothing is set apart any more", WITHIN_S)
            assert serve.metric("driver_starts_total") == 1
        told = spark_mesh.meshctl("history", "--pipeline", "archivist").stdout
        assert text in told
        assert "the disk was full" in told
    finally:
        orchard.clear()


def apart(mesh: Mesh) -> set[str]:
    """Topics that jobs set apart."""
    jobs: list[dict[str, Any]] = json.loads(mesh.meshctl("jobs", "list", "-o", "json").stdout)["jobs"]
    return {each["topic"] for job in jobs for each in job["status"]["apart"]}
