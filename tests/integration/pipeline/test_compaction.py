"""Finished days are compacted: each record stands there once, at whichever moment it is looked at or cut off."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.pipeline.orchard import MIDNIGHT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from services.pipeline.archives.compaction import CompactionRules
    from services.pipeline.archives.layout import Plan
    from services.pipeline.storage.hadoop import HadoopFolder
    from tests.integration.pipeline.archives import Archive, TwoDays

YESTERDAY = (MIDNIGHT - timedelta(days=1)).date().isoformat()
TODAY = MIDNIGHT.date().isoformat()
STAGED_FILES = "_compaction/*/*/staged/*"


@pytest.fixture
def rules() -> CompactionRules:
    """All that there is, is finished."""
    from services.pipeline.archives.compaction import CompactionRules

    return CompactionRules(after=timedelta(days=-1))


@pytest.fixture
def small_files(two_days: TwoDays, tmp_path: Path) -> Archive:
    """Records of two days in several batches."""
    return two_days.copied_to(tmp_path / "archive")


def test_days_become_one_sorted_file_each_and_go_on_to_be_archived(
    small_files: Archive, two_days: TwoDays, rules: CompactionRules
) -> None:
    from tests.integration.pipeline.archives import places_in_file, reading

    before_and_after = reading(small_files.folder)
    first = next(before_and_after)
    assert small_files.compact(rules) == 2
    assert dict([first, *before_and_after]) == two_days.records, "who has listed small files finds the large ones"
    assert small_files.records() == two_days.records
    assert [path.parent.name for path in small_files.files(YESTERDAY)] == ["batch=2"]
    in_order = places_in_file(small_files.files(YESTERDAY)[0])
    assert in_order == sorted(in_order)

    orchard = two_days.orchard
    orchard.grow(60)  # belong to both days, too
    small_files.run(orchard.topic)
    assert small_files.records() == small_files.records_by_the_reader() == orchard.records
    assert small_files.compact(rules) == 2
    assert small_files.records() == small_files.records_by_the_reader() == orchard.records
    assert [path.parent.name for path in small_files.files(YESTERDAY)] == ["batch=3"]


def test_days_are_worth_it_that_have_twice_the_files_that_they_need(rules: CompactionRules) -> None:
    megabyte = 1 << 20
    assert rules.is_worth_while([megabyte, megabyte])
    assert not rules.is_worth_while([megabyte])
    assert not rules.is_worth_while([256 * megabyte] * 3 + [megabyte])
    assert rules.is_worth_while([256 * megabyte] * 3 + [megabyte] * 5)


def test_only_finished_days_are_touched_and_other_stores_are_read_alike(
    small_files: Archive, two_days: TwoDays
) -> None:
    import fsspec

    from services.pipeline.archives.compaction import CompactionRules
    from tests.integration.pipeline.archives import read_by_the_reader

    before = small_files.files(TODAY)
    assert small_files.compact(CompactionRules(after=timedelta(0))) == 1
    assert small_files.files(TODAY) == before
    assert len(small_files.files(YESTERDAY)) == 1
    store = f"/{two_days.orchard.topic}"
    fsspec.filesystem("memory").put(str(small_files.folder), store, recursive=True)
    assert read_by_the_reader(f"memory:/{store}") == two_days.records


def test_what_never_became_a_plan_is_swept_and_a_batch_that_may_be_written_again_is_left_alone(
    small_files: Archive,
    two_days: TwoDays,
    rules: CompactionRules,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_files.forget_last_commit()
    plan = plan_only(small_files, rules, monkeypatch)
    assert plan.batches == (0, 1)
    (small_files.folder / plan.into.plan).unlink()
    assert small_files.records() == two_days.records
    small_files.run(two_days.orchard.topic)
    assert not list((small_files.folder / "_compaction").glob("*/*"))
    assert small_files.records() == small_files.records_by_the_reader() == two_days.orchard.records


def test_wherever_it_is_cut_off_no_record_is_there_twice_and_the_next_run_brings_all_back(
    small_files: Archive,
    two_days: TwoDays,
    rules: CompactionRules,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from services.pipeline.archives import compaction
    from services.pipeline.storage.hadoop import HadoopFolder
    from tests.integration.pipeline.archives import read_back, read_by_the_reader

    plan = plan_only(small_files, rules, monkeypatch)
    cuts = 0
    while True:
        folder = tmp_path / f"cut-{cuts}"
        shutil.copytree(small_files.folder, folder)
        is_cut = not carried_out(spark, folder, plan, changes=cuts)
        visible = read_back(folder)
        assert visible.items() <= two_days.records.items()
        assert read_by_the_reader(folder) == two_days.records
        compaction.settle(HadoopFolder(spark, str(folder)))
        assert read_back(folder) == read_by_the_reader(folder) == two_days.records
        assert not list(folder.glob(STAGED_FILES))
        assert [path.parent.name for path in folder.glob(f"day={YESTERDAY}/*/*.parquet")] == ["batch=2"]
        if not is_cut:
            break
        cuts += 1
    assert cuts >= 6, "three batches, the folder, the file, what was staged"


def test_whenever_another_driver_takes_the_archive_no_record_is_there_twice_and_none_is_lost(
    small_files: Archive,
    two_days: TwoDays,
    rules: CompactionRules,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from services.pipeline.archives.compaction import carry_out, settle
    from services.pipeline.storage.ownership import OwnedFolder
    from tests.integration.pipeline.archives import read_back, read_by_the_reader
    from tests.integration.pipeline.take_overs import taken_over

    plan = plan_only(small_files, rules, monkeypatch)
    for at in count(1):
        folder = tmp_path / f"change-{at}"
        shutil.copytree(small_files.folder, folder)
        first, second = OwnedFolder(spark, str(folder)), OwnedFolder(spark, str(folder))
        first.take()

        def take_over(second: OwnedFolder = second) -> None:
            second.take()
            settle(second)

        with taken_over(take_over, at=at) as changes, suppress(Exception):
            carry_out(first, plan)
        assert read_back(folder) == read_by_the_reader(folder) == two_days.records, changes
        if len(changes) < at:
            break
    assert at > 5, "three batches, the file, what was staged"


class Killed(BaseException):
    """As a kill: nothing is cleaned up."""


def plan_only(archive: Archive, rules: CompactionRules, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan of the first day, after which the job was killed."""
    from services.pipeline.archives import compaction

    plans: list[Plan] = []

    def die(_files: HadoopFolder, plan: Plan) -> None:
        plans.append(plan)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(compaction, "carry_out", die)
        archive.compact(rules)
    return plans[0]


def carried_out(spark: SparkSession, folder: Path, plan: Plan, *, changes: int) -> bool:
    """Whether the plan was carried out before as many changes were made."""
    from services.pipeline.archives import compaction
    from services.pipeline.storage.hadoop import HadoopFolder

    class Mortal(HadoopFolder):
        left = changes

        def delete(self, path: str) -> None:
            self._live()
            super().delete(path)

        def move(self, path: str, to: str) -> None:
            self._live()
            super().move(path, to)

        def make(self, path: str) -> None:
            self._live()
            super().make(path)

        def _live(self) -> None:
            if self.left == 0:
                raise Killed
            self.left -= 1

    try:
        compaction.carry_out(Mortal(spark, str(folder)), plan)
    except Killed:
        return False
    return True
