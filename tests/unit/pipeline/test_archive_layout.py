"""What counts among the files of an archive, whatever moment of a compaction it is listed at."""

from __future__ import annotations

from services.pipeline.archives.layout import (
    ArchivedFile,
    BatchFolder,
    Holding,
    Plan,
    latest_plans,
    records_of,
)
from services.pipeline.kafka.positions import TopicPosition
from services.pipeline.storage.layout import position_of

DAY = "2026-11-21"
HELD = Holding("apples", 0, 10, 19, 10, 1_000, 2_000)
PLAN = Plan(BatchFolder(DAY, 3), (1, 2, 3), {"part-0.parquet": (HELD,)})
STAGED = f"_compaction/day={DAY}/batch=3/staged/part-0.parquet"
MOVED = f"day={DAY}/batch=3/part-0.parquet"
SMALL = [f"day={DAY}/batch={batch}/part-{batch}.parquet" for batch in (1, 2, 3)]
LATER = f"day={DAY}/batch=4/part-4.parquet"
OTHER_DAY = "day=2026-11-22/batch=3/part-9.parquet"


def test_a_path_tells_day_and_batch_and_records_without_a_time_have_none() -> None:
    assert BatchFolder.of(f"/data/fruit/{MOVED}") == BatchFolder.of(STAGED) == BatchFolder(DAY, 3)
    assert BatchFolder.of("day=__HIVE_DEFAULT_PARTITION__/batch=3/part-0.parquet") is None
    assert BatchFolder.of("_checkpoint/commits/3") is None


def test_what_a_plan_replaces_does_not_count_and_what_it_makes_does() -> None:
    made = ArchivedFile((STAGED, MOVED), (HELD,))
    before_it, amid_it, after_it = [*SMALL, LATER, OTHER_DAY], [SMALL[2], LATER, OTHER_DAY], [MOVED, LATER, OTHER_DAY]
    for listed in (before_it, amid_it, after_it):
        assert records_of(listed, [PLAN]) == ([LATER, OTHER_DAY], [made])


def test_without_plans_all_files_count() -> None:
    assert records_of(SMALL, []) == (SMALL, [])


def test_the_last_plan_of_a_day_counts_it_has_taken_in_those_before() -> None:
    plans = [f"_compaction/day={DAY}/batch={batch}/plan.json" for batch in (9, 10)]
    assert latest_plans([*plans, STAGED]) == {DAY: BatchFolder(DAY, 10)}


def test_a_plan_is_read_as_it_was_written() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN


def test_a_file_may_have_topics_that_nobody_asks_for() -> None:
    pears = Holding("pears", 0, 0, 4, 5, None, None)
    assert ArchivedFile(("a",), (HELD, pears)).only({"pears"}) == ArchivedFile(("a",), (pears,))
    assert ArchivedFile(("a",), (HELD,)).only({"pears"}) is None


def test_where_the_job_stood_is_told_by_the_checkpoint() -> None:
    noted = 'v1\n{"batchWatermarkMs":0}\n{"apples": {"id": "x", "next": {"0": 20}, "from": {}}}'
    assert position_of(noted) == {"apples": TopicPosition("x", {0: 20}, {})}
