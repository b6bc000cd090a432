"""Tasks of the job `audit` write Parquet by themselves: each day in files of its own, where no reader looks."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipeline.told import event, events

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

NOW = datetime.fromtimestamp(int(time.time()), UTC)
BEFORE = NOW - timedelta(days=3)


def piece(*times: datetime) -> Any:
    """With an event of each time, and something that is none."""
    from services.pipeline.auditing.pieces import EVENTS, piece_of

    told = events(*(event(number, at) for number, at in enumerate(times)), b"boom")
    return piece_of(told, "audit", 3).select([EVENTS])


def written(folder: Path, *given: Any) -> list[dict[str, str]]:
    from services.pipeline.auditing.day_files import DayFiles
    from services.pipeline.storage.stores import Store

    return [row for batch in DayFiles(Store(str(folder)), 17).write(iter(given)) for row in batch.to_pylist()]


def times_in(file: Path) -> list[datetime]:
    times: list[datetime] = pyarrow.parquet.read_table(file).column("time").to_pylist()
    return times


def test_each_day_has_a_file_that_is_named_and_stands_where_no_reader_looks(tmp_path: Path) -> None:
    import pyarrow.dataset

    named = written(tmp_path, piece(NOW, BEFORE), piece(NOW))
    assert [each["day"] for each in named] == [str(BEFORE.date()), str(NOW.date())]
    stage = tmp_path / "_staged" / "batch=17"
    files = {each["day"]: stage / f"day={each['day']}" / each["name"] for each in named}
    assert sorted(each for each in stage.rglob("*") if each.is_file()) == sorted(files.values())
    assert [times_in(files[str(at.date())]) for at in (BEFORE, NOW)] == [[BEFORE], [NOW, NOW]]
    assert pyarrow.dataset.dataset(tmp_path, format="parquet").count_rows() == 0


def test_a_file_has_what_an_event_is_and_where_it_was_read(tmp_path: Path) -> None:
    from services.pipeline.auditing.events import COLUMNS, ORIGIN

    [each] = written(tmp_path, piece(NOW))
    file = tmp_path / "_staged" / "batch=17" / f"day={each['day']}" / each["name"]
    [row] = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    assert tuple(row) == (*COLUMNS, *ORIGIN)
    assert (row["cluster_name"], row["source_topic"], row["source_partition"], row["time"]) == ("c1", "audit", 3, NOW)


def test_no_more_is_held_than_goes_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from services.pipeline.auditing import day_files

    monkeypatch.setattr(day_files, "MOST_ROWS", 2)
    assert len(written(tmp_path, piece(NOW), piece(NOW), piece(NOW))) == 2


def test_where_nothing_is_an_event_there_is_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, piece()) == []
    assert not list(tmp_path.rglob("*.parquet"))
