"""A topic moves to another cluster before the archive has all its records: the archive reads the rest where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pipeline.archivist import PARTITIONS, archived, archiving, log_of
from tests.e2e.pipeline.test_archive_through_the_mesh import archive
from tests.fixtures.meshes import Mesh
from tests.fixtures.record_rules import Side
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]

WITHIN_S = 180.0
OPEN_MS = 600_000
"""A transaction stays open as long as the test needs, however busy the machine is."""


@pytest.fixture
def folder(spark_mesh: Mesh, sides: dict[str, Side], apples: str, tmp_path: Path) -> Path:
    """An archive of all records that c1 has."""
    made = tmp_path / "archive"
    grow(sides["c1"], apples, 30, "archived")
    archive(spark_mesh, made, apples)
    return made


def grow(side: Side, topic: str, records: int, name: str) -> None:
    side.write(topic, [(number % PARTITIONS, f"{name}-{number}".encode()) for number in range(records)])


def move(mesh: Mesh, topic: str, cluster: str, *how: str) -> None:
    mesh.meshctl("rule", "set", "--topic", topic, "--to", cluster, "--wait", *how)


def status(mesh: Mesh) -> dict[str, Any]:
    """The archive as control shows it; empty before its first report."""
    jobs = json.loads(mesh.meshctl("jobs", "list", "-o", "json").stdout)["jobs"]
    found: list[dict[str, Any]] = [each["status"] for each in jobs if each["status"]["job"] == "archive"]
    return found[0] if found else {}


def test_records_that_a_topic_left_at_its_former_cluster_are_archived_once_and_its_end_there_is_no_loss(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str, folder: Path
) -> None:
    grow(sides["c1"], apples, 30, "left")
    move(spark_mesh, apples, "c2")
    grow(sides["c2"], apples, 20, "new")
    on_c1 = log_of(sides["c1"], apples)
    archive(spark_mesh, folder, apples)
    assert archived(folder, 0) == on_c1
    assert archived(folder, 1) == log_of(sides["c2"], apples)

    sides["c1"].delete(apples)
    grow(sides["c2"], apples, 20, "newer")
    archive(spark_mesh, folder, apples)
    assert archived(folder, 0) == on_c1
    assert archived(folder, 1) == log_of(sides["c2"], apples)


def test_left_records_are_found_under_the_name_that_the_topic_had_there_and_the_topic_goes_on_there_when_it_is_back(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str, tmp_path: Path
) -> None:
    folder, there = tmp_path / "archive", f"old.{apples}"
    sides["c1"].create(there, PARTITIONS)
    move(spark_mesh, apples, "c1", "--upstream-topic", "old.{topic}")
    grow(sides["c1"], there, 30, "archived")
    archive(spark_mesh, folder, apples)
    grow(sides["c1"], there, 30, "left")
    move(spark_mesh, apples, "c2", "--upstream-topic", "{topic}")
    archive(spark_mesh, folder, apples)
    assert archived(folder, 0) == log_of(sides["c1"], there)

    grow(sides["c2"], apples, 20, "left too")
    move(spark_mesh, apples, "c1", "--upstream-topic", "old.{topic}")
    grow(sides["c1"], there, 30, "back")
    archive(spark_mesh, folder, apples)
    assert archived(folder, 0) == log_of(sides["c1"], there)
    assert archived(folder, 1) == log_of(sides["c2"], apples)
    assert archived(folder, 2) == {}


def test_left_records_count_as_missing_until_their_transaction_has_ended_and_they_are_archived(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str, folder: Path
) -> None:
    producer = sides["c1"].producer(**{"transactional.id": apples, "transaction.timeout.ms": OPEN_MS})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(apples, b"left", partition=0)
    assert producer.flush(WITHIN_S) == 0
    move(spark_mesh, apples, "c2")
    grow(sides["c2"], apples, 20, "new")
    with archiving(spark_mesh, folder, apples, every_s=1):
        wait_until(lambda: len(archived(folder, 1)) == 20, "the new records are archived", WITHIN_S)
        wait_until(lambda: status(spark_mesh).get("behind") == "1", "one record is left", WITHIN_S)
        assert "complete_until" not in status(spark_mesh)
        assert b"left" not in archived(folder, 0).values()
        producer.commit_transaction(WITHIN_S)
        wait_until(lambda: "complete_until" in status(spark_mesh), "all is archived", WITHIN_S)
    assert archived(folder, 0) == log_of(sides["c1"], apples)


def test_what_was_deleted_before_the_archive_read_it_is_named_as_lost_until_an_operator_accepts_that(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str, folder: Path
) -> None:
    before = archived(folder, 0)
    grow(sides["c1"], apples, 30, "lost")
    move(spark_mesh, apples, "c2")
    sides["c1"].delete(apples)
    grow(sides["c2"], apples, 20, "new")
    with archiving(spark_mesh, folder, apples) as serve:
        wait_until(lambda: status(spark_mesh).get("apart_count"), "the loss is shown", WITHIN_S)
        shown = spark_mesh.meshctl("jobs", "list").stdout
        assert f"topic {apples} was deleted at c1 before it was read to its end there" in shown
        assert f"to go on without what is lost: meshctl jobs accept-loss archive {apples}" in shown
        assert archived(folder, 1) == log_of(sides["c2"], apples), "the topic is archived where it is now"
        said = spark_mesh.meshctl("jobs", "accept-loss", "archive", apples, "--reason", "it was test data").stdout
        assert "done, goes on without what was left at c1" in said
        wait_until(lambda: not status(spark_mesh).get("apart_count"), "nothing is set apart any more", WITHIN_S)
        assert serve.metric("driver_starts_total") == 1
    archive(spark_mesh, folder, apples)
    assert archived(folder, 0) == before
