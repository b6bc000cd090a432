"""A topic moves by a rule to another cluster and back, under load, while a pipeline archives it through the mesh."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.e2e.pipeline.archivist import PARTITIONS, archived, archiving, log_of
from tests.e2e.pipeline.test_archive_through_the_mesh import archive
from tests.fixtures.meshes import Mesh
from tests.fixtures.record_rules import Side
from tests.fixtures.waiting import wait_unless, wait_until
from tests.fixtures.writers import Writer

WITHIN_S = 180.0
LONG, SHORT = 900, 300
"""Records: the log of c1 is longer than that of c2 when the topic comes back."""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_each_record_is_archived_once_over_moves_to_and_fro(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"

    def move(cluster: str) -> None:
        spark_mesh.meshctl("rule", "set", "--topic", apples, "--to", cluster, "--wait")

    def archive_has(cluster: str, generation: int) -> None:
        """The archive has all that is on the cluster, once."""

        def obstacle() -> str | None:
            serve.must_run()
            found, stored = archived(folder, generation), log_of(sides[cluster], apples)
            if surplus := found.items() - stored.items():
                return f"generation {generation} has {len(surplus)} records that {cluster} has not: {min(surplus)}"
            return f"{len(found)} of {len(stored)} records of {cluster}" if found != stored else None

        wait_unless(obstacle, f"generation {generation} is the log of {cluster}", WITHIN_S)

    with archiving(spark_mesh, folder, apples, every_s=1) as serve:
        writer = Writer("a", spark_mesh.gateway, apples)
        try:
            more(writer, LONG)
            wait_until(lambda: archived(folder, 0), "records of c1 are archived", WITHIN_S)
            move("c2")
            more(writer, SHORT)
            wait_until(lambda: archived(folder, 1), "records of c2 are archived", WITHIN_S)
            move("c1")
            more(writer, SHORT)
        finally:
            asyncio.run(writer.end())
        assert writer.faults == []
        archive_has("c1", 0)
        move("c2")
        archive_has("c2", 1)
        move("c1")
        archive_has("c1", 0)
    told = folder.with_name("serve.log").read_text()
    assert "a rule has moved a topic; what was not archived before is read from the former cluster" in told
    everything = [*archived(folder, 0).values(), *archived(folder, 1).values()]
    assert sorted(everything, key=str) == sorted((each.encode() for each in writer.stored), key=str)
    assert archived(folder, 2) == {}, "the topic came back: it was no third one"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_batch_that_was_cut_off_before_a_move_is_archived_when_the_topic_is_back(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    for _ in range(2):
        sides["c1"].write(apples, [(number % PARTITIONS, b"%d" % number) for number in range(30)])
        archive(spark_mesh, folder, apples)
    (folder / "_checkpoint" / "commits" / "1").unlink()
    (folder / "_checkpoint" / "commits" / ".1.crc").unlink()
    for written in folder.glob("day=*/batch=1"):
        shutil.rmtree(written)  # as if it had been killed before the write
    for cluster in ("c2", "c1"):
        spark_mesh.meshctl("rule", "set", "--topic", apples, "--to", cluster, "--wait")
        archive(spark_mesh, folder, apples)
    assert archived(folder, 0) == log_of(sides["c1"], apples)


def more(writer: Writer, records: int) -> None:
    until = len(writer.stored) + records
    wait_until(lambda: len(writer.stored) >= until, f"{records} more records are stored", WITHIN_S)
