"""A run beside the committed baseline: told what is better and what is worse, and what is the noise of any two runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.wire import baseline
from tests.bench.wire.baseline import WRITE, Baseline


@pytest.fixture(autouse=True)
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "baseline.json"
    figures = {"W4, gateway": {"throughput": 0.50, "CPU": 2.0}, "W3, gateway": {"added p50 us": 100.0}}
    file.write_text(json.dumps({"measured": "once", "figures": figures}), encoding="utf-8")
    monkeypatch.setattr(baseline, "FILE", file)
    return file


@pytest.mark.parametrize(
    ("workload", "figure", "now", "verdict"),
    [
        ("W4", "throughput", 0.52, "as it was"),
        ("W4", "throughput", 0.60, "better"),
        ("W4", "throughput", 0.40, "WORSE"),
        ("W4", "CPU", 1.5, "better"),
        ("W4", "CPU", 2.5, "WORSE"),
        ("W3", "added p50 us", 110.0, "as it was"),
        ("W3", "added p50 us", 60.0, "better"),
        ("W2", "CPU", 1.0, "new"),
    ],
)
def test_what_a_figure_is_beside_the_committed_one(workload: str, figure: str, now: float, verdict: str) -> None:
    run = Baseline(now={f"{workload}, gateway": {figure: now}})

    (row,) = run.table().rows

    assert row[-1] == verdict


def test_a_baseline_is_written_only_when_that_is_wanted(committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = committed.read_text(encoding="utf-8")
    run = Baseline(now={"W4, gateway": {"CPU": 1.1}}, others=[0.1])

    run.keep()
    assert committed.read_text(encoding="utf-8") == before

    monkeypatch.setenv(WRITE, "write")
    run.keep()
    assert baseline.read().figures == {"W4, gateway": {"CPU": 1.1}, "W3, gateway": {"added p50 us": 100.0}}
