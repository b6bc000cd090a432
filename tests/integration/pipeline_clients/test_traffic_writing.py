"""How a batch of traffic changes the tables, without Spark: rows as tasks give them on, to what PostgreSQL holds."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")
pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

import pyarrow

from services.control.store.migrate import migrate
from services.pipeline.postgres.tables import Database
from services.pipeline.traffic import pieces as rows
from services.pipeline.traffic import writer as writing
from services.pipeline.traffic.receipts import MOST_RANGES, ReceiptFold
from services.pipeline.traffic.reports import Receipt, ReceiptNames
from services.pipeline.traffic.rollup import Fold, Step
from services.pipeline.traffic.watermark import Extent, Report
from services.pipeline.traffic.writer import Counts, Outcome, Plan, write
from tests.fixtures.databases import PostgresServer
from tests.integration.pipeline.emitters import STEPS, Counter, Tables

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
FOR_EVER = dict.fromkeys(Step, date.min)
PLAN = Plan(0, {}, None, {0: Extent(9, 9, None)}, NOON + timedelta(days=1), FOR_EVER, date.min)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    made = postgres()
    migrate(made)
    return made


class Task:
    """A task that has read reports."""

    def __init__(self, partition: int = 0) -> None:
        self._partition = partition
        self._fold = Fold(FOR_EVER)
        self._receipts = ReceiptFold(date.min)
        self._reports: list[tuple[Report, bool]] = []

    def read(self, counters: Sequence[Counter], at: datetime = NOON, *, name: str = "", folds: bool = True) -> Task:
        place = (self._partition, len(self._reports))
        report = Report(place, at, name or uuid.uuid4().hex, at, at + timedelta(seconds=10), len(counters))
        self._reports.append((report, folds))
        if folds:
            protos = [each.to_proto() for each in counters]
            self._fold.add(
                int(at.timestamp()),
                "g1",
                [
                    (
                        each.client, each.principal, each.topic, each.rule, each.cluster, each.api,
                        each.records, each.bytes, each.calls, each.errors, each.latency_sketch,
                    )
                    for each in protos
                ],
            )  # fmt: skip
        return self

    def receives(self, *receipts: Receipt, at: datetime = NOON) -> Task:
        """A report with these receipts."""
        self.read([], at)
        self._receipts.add(at.timestamp(), at.timestamp() + 10, receipts)
        return self

    def given(self) -> Iterator[pyarrow.RecordBatch]:
        sums, series = self._fold.take()
        yield from rows.of_sums(sums)
        yield from rows.of_series(series)
        yield from rows.of_receipts(self._receipts.take())
        yield rows.of_reports(self._reports)


def written(url: str, plan: Plan, *tasks: Task) -> Outcome:
    """What Spark does between the tasks that read and the one that writes."""
    order = [(name, "ascending") for name in rows.ORDER]
    given = pyarrow.Table.from_batches(batch for task in tasks for batch in task.given())
    (batch,) = write(Database(url), plan, iter(given.sort_by(order).to_batches(max_chunksize=7)))
    return Outcome.of_json(batch.column("outcome")[0].as_py())


def numbers(url: str, counter: Counter) -> list[tuple[int, int, int, int, int]]:
    """What the tables hold of a counter's series, minutes first."""
    names = (*(getattr(counter, name) for name in ("client", "principal", "topic", "rule", "cluster", "api")), "g1")
    found = Tables(url).numbers()
    return [each for table in STEPS for row, each in sorted(found.items()) if row[0] == table and row[2] == names]


def test_what_several_tasks_have_of_a_row_is_joined_and_added_to_what_stands(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS_AT_ONCE", 4)
    slow, plain = Counter(latencies=(1.0, 2.0)), Counter(api="Metadata", latencies=())
    others = [Counter(client=f"client-{number}") for number in range(9)]
    outcome = written(url, PLAN, Task(0).read([slow, plain, *others]), Task(1).read([slow, plain]))
    assert outcome.counts == Counts(reports=2, counters=13)
    assert numbers(url, slow) == [(20, 2_000, 4, 0, 4)] * 3
    assert numbers(url, plain) == [(20, 2_000, 0, 0, 0)] * 3
    assert [numbers(url, each) for each in others] == [[(10, 1_000, 3, 0, 3)] * 3] * 9

    with_latency = replace(plain, latencies=(7.0,))
    later = Task().read([slow, with_latency]).read([with_latency], NOON + timedelta(seconds=70))
    assert written(url, replace(PLAN, after=1), later).leave_out is None
    assert numbers(url, slow) == [(30, 3_000, 6, 0, 6)] * 3
    assert numbers(url, with_latency) == [(30, 3_000, 1, 0, 1), (10, 1_000, 1, 0, 1), *[(40, 4_000, 2, 0, 2)] * 2]
    assert written(url, replace(PLAN, after=2), Task().read([plain])).leave_out is None
    assert numbers(url, plain)[0] == (40, 4_000, 1, 0, 1), "latencies stay where none come"


def test_a_batch_that_builds_on_another_than_the_last_writes_nothing(url: str) -> None:
    assert written(url, PLAN, Task().read([Counter()])).counts.reports == 1
    assert written(url, PLAN, Task().read([Counter()])) == Outcome(is_overtaken=True)
    assert numbers(url, Counter()) == [(10, 1_000, 3, 0, 3)] * 3


def test_a_report_that_a_task_took_and_that_does_not_count_is_to_be_left_out_first(url: str) -> None:
    name, other = uuid.uuid4().hex, uuid.uuid4().hex
    assert written(url, PLAN, Task(0).read([Counter()], name=name)).counts.reports == 1

    def tasks(*, folds: bool = True) -> Iterable[Task]:
        return (
            Task(0).read([Counter()], name=other).read([Counter()], name=other, folds=False),
            Task(1).read([Counter()], name=name, folds=folds).read([Counter()], name=other, folds=folds),
        )

    second = replace(PLAN, after=1)
    outcome = written(url, second, *tasks())
    assert outcome == Outcome(leave_out=frozenset({(0, 1), (1, 0), (1, 1)}))
    assert numbers(url, Counter()) == [(10, 1_000, 3, 0, 3)] * 3, "nothing is written"
    outcome = written(url, second, *tasks(folds=False))
    assert outcome.counts == Counts(reports=1, counters=1, repeated=3)
    assert numbers(url, Counter()) == [(20, 2_000, 6, 0, 6)] * 3


def test_a_batch_of_offsets_without_reports_moves_the_position_and_no_more(url: str) -> None:
    assert written(url, PLAN, Task()) == Outcome(complete_until=(PLAN.looked - timedelta(seconds=30)).timestamp())
    assert (Tables(url).progress()["batch"], Tables(url).numbers()) == (1, {})


ALICE: ReceiptNames = ("User:alice", "shop-1", "shop", "apples", "c1", "ab" * 16, 0)
HOUR = timedelta(hours=1)


def receipt(*ranges: tuple[int, int], names: ReceiptNames = ALICE, exact: bool = False) -> Receipt:
    return Receipt(names, ranges, None, exact)


def receipts(url: str) -> list[tuple[str, datetime, list[tuple[int, int]], list[tuple[int, int]]]]:
    """Client, time, ranges and wide range of all rows."""
    query = (
        "select client, time, sent, perhaps from receipts join receipt_readers using (reader) "
        "order by client, topic_id, time"
    )
    with Database(url).connect() as connection:
        found: list[Any] = connection.execute(query).fetchall()
    return [(row[0], row[1], *([(each.lower, each.upper) for each in ranges] for ranges in row[2:4])) for row in found]


def test_ranges_of_several_tasks_reports_and_batches_are_joined_and_a_repeated_one_changes_nothing(url: str) -> None:
    again = [receipt((0, 100)), receipt((300, 310))]
    first = (Task(0).receives(*again), Task(1).receives(receipt((100, 200))))
    assert written(url, PLAN, *first).leave_out is None
    assert receipts(url) == [("shop-1", NOON, [(0, 200), (300, 310)], [])]
    later = Task().receives(*again, receipt((200, 299))).receives(receipt((310, 320)), at=NOON + HOUR)
    assert written(url, replace(PLAN, after=1), later).leave_out is None
    assert receipts(url) == [
        ("shop-1", NOON, [(0, 299), (300, 310)], []),
        ("shop-1", NOON + HOUR, [(310, 320)], []),
    ]


def test_a_topic_that_was_created_again_and_one_that_asks_for_exact_receipts_have_rows_of_their_own(url: str) -> None:
    again: ReceiptNames = (*ALICE[:5], "cd" * 16, 0)
    exact: ReceiptNames = (ALICE[0], "shop-2", *ALICE[2:])
    at = NOON + timedelta(minutes=7, seconds=30)
    task = Task().receives(
        receipt((0, 9)), receipt((0, 5), names=again), receipt((0, 3), names=exact, exact=True), at=at
    )
    written(url, PLAN, task)
    assert receipts(url) == [
        ("shop-1", NOON, [(0, 9)], []),
        ("shop-1", NOON, [(0, 5)], []),
        ("shop-2", NOON + timedelta(minutes=7), [(0, 3)], []),
    ]


def test_a_row_without_room_for_more_ranges_says_that_some_offsets_were_sent_and_not_which(url: str) -> None:
    some = receipt(*((first, first + 1) for first in range(0, 2 * MOST_RANGES, 2)))
    written(url, PLAN, Task().receives(some))
    written(url, replace(PLAN, after=1), Task().receives(receipt((5_000, 5_001), (6_000, 6_001))))
    written(url, replace(PLAN, after=2), Task().receives(receipt((1, 2))))
    ((_, _, ranges, perhaps),) = receipts(url)
    assert (len(ranges), ranges[:2], perhaps) == (MOST_RANGES - 1, [(0, 3), (4, 5)], [(5_000, 6_001)])


def test_receipts_of_days_that_are_not_kept_are_left_out(url: str) -> None:
    fold = ReceiptFold(NOON.date() + timedelta(days=1))
    fold.add(NOON.timestamp(), NOON.timestamp() + 10, [receipt((0, 9))])
    assert list(fold.take()) == []
