"""Counters come to the same sums whoever folds them, in whichever order and parts; no Spark, no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from operator import itemgetter

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

import datasketches
import numpy
import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from services.pipeline.traffic import pieces as rows
from services.pipeline.traffic.latencies import sound
from services.pipeline.traffic.pieces import Kind
from services.pipeline.traffic.receipts import ReceiptRow
from services.pipeline.traffic.reports import LONGEST_NAME, Counter, Who
from services.pipeline.traffic.rollup import SECONDS, Fold, Names, Row, Step, joined, series_of, together
from services.pipeline.traffic.watermark import Report
from tests.fixtures.traffic_tables import sketch

NOON = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp())
FOR_EVER = dict.fromkeys(Step, date.min)
WHO: Who = ("billing", "ada", "orders", "rules/orders", "c1", "Produce")
Given = tuple[int, str, Sequence[Counter]]
"""When a report began, its reporter, and what it has counted."""
Numbers = tuple[int, int, int, int, int]
"""Records, bytes, calls, errors, and values in the sketch."""
BY_KEY = itemgetter(0, 1, 2)


def counter(who: Who = WHO, latencies: Sequence[float] = (1.0,), *, records: int = 1, size: int = 10) -> Counter:
    return (*who, records, size, len(latencies), 0, sketch(list(latencies)) or b"")


def folded(reports: Iterable[Given], begins: dict[Step, date] | None = None) -> tuple[list[Row], dict[str, Names]]:
    fold = Fold(begins or FOR_EVER)
    for each in reports:
        fold.add(*each)
    taken, series = fold.take()
    return sorted(taken, key=BY_KEY), series


def values(latency: bytes | None) -> int:
    return int(datasketches.kll_floats_sketch.deserialize(latency).n) if latency else 0


def numbers(found: Iterable[Row]) -> dict[tuple[int, int, str], Numbers]:
    listed = [((step, time, series), (*counts, values(latency))) for step, time, series, *counts, latency in found]
    assert len(dict(listed)) == len(listed), "a key comes once"
    return dict(listed)  # type: ignore[arg-type]  # what stands behind the star has four


def truth(reports: Iterable[Given]) -> dict[tuple[int, int, str], Numbers]:
    expected: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0] * 5)
    for start, reporter, counters in reports:
        for each in counters:
            series, _ = series_of(each[:6], reporter)
            for step, seconds in SECONDS.items():
                row = expected[step, start - start % seconds, series]
                for number, added in enumerate((*each[6:10], values(each[10]))):
                    row[number] += added
    return {key: (row[0], row[1], row[2], row[3], row[4]) for key, row in expected.items()}


names = st.sampled_from(["", "a", "b", "it's \\N, \t a\nname"])
counters = st.builds(
    lambda client, topic, latencies, records: counter(
        (client, "", topic, "", "c1", "Fetch"), latencies, records=records
    ),
    names, names, st.lists(st.floats(0, 100, width=32), max_size=4), st.integers(0, 2**50),
)  # fmt: skip
reports_ = st.lists(
    st.tuples(st.integers(NOON, NOON + 2 * SECONDS[Step.DAY]), st.sampled_from(["g1", "g2"]), st.lists(counters)),
    max_size=12,
)


@given(reports_, st.data())
def test_any_order_and_parts_come_to_the_same_sums(reports: list[Given], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(reports))
    at = data.draw(st.integers(0, len(reports)))
    parts = [*folded(shuffled[:at])[0], *folded(shuffled[at:])[0]]
    assert numbers(joined(sorted(parts, key=BY_KEY))) == truth(reports)


def test_a_fold_that_is_taken_begins_anew_and_is_as_large_as_its_minutes() -> None:
    fold = Fold(FOR_EVER)
    for second in (0, 10, 20, 60):
        fold.add(NOON + second, "g1", [counter(), counter(("", "", "", "", "", "Metadata"), ())])
    assert len(fold) == 4
    taken, series = fold.take()
    assert len(fold) == 0
    assert [row[0] for row in sorted(taken)] == [Step.MINUTE] * 4 + [Step.HOUR] * 2 + [Step.DAY] * 2
    assert len(series) == 2
    fold.add(NOON, "g1", [counter()])
    again, _ = fold.take()
    assert sorted(numbers(again).values()) == [(1, 10, 1, 0, 1)] * 3


def test_percentiles_stay_within_the_bound_of_a_sketch_however_many_are_merged() -> None:
    lognormal = numpy.random.default_rng(8)
    parts = [[float(each) for each in lognormal.lognormal(1, 1, 100)] for _ in range(600)]
    reports = [(NOON + 10 * number, "g1", [counter(latencies=part)]) for number, part in enumerate(parts)]
    taken = sorted(folded(reports[:300])[0] + folded(reports[300:])[0], key=BY_KEY)
    (day,) = [row for row in joined(taken) if row[0] == Step.DAY]
    found = datasketches.kll_floats_sketch.deserialize(day[7])
    ordered = numpy.sort(numpy.concatenate(parts).astype(numpy.float32))
    assert found.n == len(ordered)
    assert (found.get_min_value(), found.get_max_value()) == (ordered[0], ordered[-1])
    assert len(day[7] or b"") < 3_000
    for rank in numpy.linspace(0.01, 0.99, 99):
        off = numpy.searchsorted(ordered, found.get_quantile(float(rank))) / len(ordered) - rank
        assert abs(off) < 0.03, rank


def test_a_sketch_of_another_size_is_merged_into_one_of_ours() -> None:
    small = datasketches.kll_floats_sketch(8)
    small.update(numpy.array([1.0, 2.0], dtype=numpy.float32))
    foreign = (*WHO, 1, 1, 2, 0, bytes(small.serialize()))
    for row in folded([(NOON, "g1", [foreign])])[0]:
        found = datasketches.kll_floats_sketch.deserialize(row[7])
        assert (found.k, found.n) == (200, 2)


@pytest.mark.parametrize(
    "latency", [b"\x00", b"\x05\x01\x0f broken", bytes(datasketches.kll_floats_sketch().serialize())]
)
def test_a_sketch_that_is_broken_or_empty_is_none(latency: bytes) -> None:
    assert sound(latency) is None
    assert [row[3:] for row in folded([(NOON, "g1", [(*WHO, 1, 2, 3, 4, latency)])])[0]] == [(1, 2, 3, 4, None)] * 3
    row: Row = (Step.DAY, NOON, "a", 1, 2, 3, 4, latency)
    assert together([row, row]) == (Step.DAY, NOON, "a", 2, 4, 6, 8, None)


def test_names_are_cut_and_without_nul_and_what_is_then_the_same_is_one_series() -> None:
    long = "n" * LONGEST_NAME
    digest, found = series_of((long + "a", "nu\0l", "", "", "", ""), "g1")
    assert found == (long, "nul", "", "", "", "", "g1")
    assert digest == series_of((long, "nul", "", "", "", ""), "g1")[0]
    same = [counter((long + end, "", "", "", "", "")) for end in "ab"]
    taken, series = folded([(NOON, "g1", same)])
    assert len(series) == 1
    assert [row[3] for row in joined(sorted(taken, key=BY_KEY))] == [2, 2, 2]


def test_a_series_has_the_digest_that_it_always_had() -> None:
    assert series_of(WHO, "gateway-1")[0] == "0e0b3ee49c93f3fbac6c2b3f949071d8"


def test_steps_that_are_not_kept_so_long_have_no_rows() -> None:
    begins = {Step.MINUTE: date(2026, 11, 23), Step.HOUR: date(2026, 11, 22), Step.DAY: date.min}
    assert [row[0] for row in folded([(NOON, "g1", [counter()])], begins)[0]] == [Step.HOUR, Step.DAY]


def in_order(*batches: pyarrow.RecordBatch) -> list[tuple[rows.Kind, pyarrow.RecordBatch]]:
    """What Spark does with pieces, which come one by one here."""
    order = [(name, "ascending") for name in rows.ORDER]
    return list(rows.by_kind(pyarrow.Table.from_batches(batches).sort_by(order).to_batches(max_chunksize=1)))


def test_rows_come_back_as_they_were_given_in_the_order_of_their_kinds() -> None:
    taken, series = folded([(NOON, "g1", [counter(), counter(("", "", "", "", "", "x"), ())])])
    moment = datetime(2026, 11, 22, 12, 0, 1, 5, tzinfo=UTC)
    told = [(Report((1, 7), moment, "ab", moment, moment, 2, 1), True), (Report((2, 0), None, problem="none"), False)]
    receipts = [ReceiptRow("ab" * 16, NOON, 1.5, 2.5, "{[1,5)}", "{}", "User:a", "c", "g", "t", "c1", "0" * 32, 3)]
    kinds = in_order(
        rows.of_reports(told),
        *rows.of_sums(reversed(taken)),
        *rows.of_series(series),
        *rows.of_receipts(receipts),
    )
    assert [kind for kind, _ in kinds] == list(rows.Kind)
    assert list(rows.to_reports(kinds[0][1])) == told
    assert [row for step in Step for row in rows.to_sums(step, [kinds[step][1]])] == taken
    assert dict(zip(*rows.to_series(kinds[Kind.SERIES][1]), strict=True)) == series
    assert list(rows.to_receipts(kinds[Kind.RECEIPT][1])) == [receipts]


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), max_size=5))
def test_pieces_of_several_tasks_pass_in_the_order_of_keys(tasks: list[list[tuple[int, int]]]) -> None:
    sums: list[list[Row]] = [
        [(step, NOON + time, f"{series:032x}", 1, 2, 3, 4, None) for step in Step for time, series in task]
        for task in tasks
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SUMS_OF_A_PIECE", 2)
        patch.setattr(rows, "SORTED_AT_ONCE", 5)
        kinds = in_order(rows.of_reports([]), *(batch for task in sums for batch in rows.of_sums(task)))
    for step in Step:
        passed = list(rows.to_sums(step, (batch for kind, batch in kinds if kind == int(step))))
        assert passed == sorted(row for task in sums for row in task if row[0] is step)


def test_a_task_without_reports_has_a_row_that_says_nothing() -> None:
    batch = rows.of_reports([])
    assert (batch.num_rows, list(rows.to_reports(batch))) == (1, [])
