"""`make test` and `make e2e` run everything that the project promises, whichever way it is cut up."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests import side_by_side
from tests.side_by_side import ELSEWHERE, HERE, LANES, Part, Suite


def test_every_test_is_in_one_part() -> None:
    for file in HERE.rglob("test_*.py"):
        if file.relative_to(HERE).parts[0] in ELSEWHERE:
            continue
        holding = [part for part in side_by_side.all_parts() if part.has(file)]
        assert len(holding) == 1, f"{file.relative_to(HERE)} is in {len(holding)} parts"


def test_a_folder_that_has_a_part_of_its_own_is_left_out_of_the_part_above() -> None:
    whole_meshes, pipelines = (Part((folder,), 0) for folder in ("e2e", "e2e/pipeline"))
    assert whole_meshes.contains("e2e/pipeline")
    assert not pipelines.contains("e2e/pipeline")
    assert not whole_meshes.has(HERE / "e2e/pipeline/test_story.py")


def test_lanes_do_not_share_ports() -> None:
    ranges = sorted(tuple(map(int, ports.split("-"))) for ports in LANES)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_a_run_that_does_not_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    monkeypatch.setattr(side_by_side, "_command", lambda part, report: endless)
    monkeypatch.setattr(side_by_side, "RUN_TIMEOUT_S", 1.0)
    suite = Suite(tmp_path)
    suite.free.put(LANES[0])
    assert suite.run(Part(("unit",), 0)) != 0
    assert "unit has not ended after 1 s, and is stopped" in capsys.readouterr().out


@pytest.mark.parametrize("outcome", ["", '<failure message="assert 1 == 2"/>'])
def test_a_process_that_outlives_its_tests_is_stopped_and_its_report_says_whether_they_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    report = (
        f'<testsuites><testsuite><testcase classname="tests.a" name="b">{outcome}</testcase></testsuite></testsuites>'
    )
    program = (
        "import pathlib, sys, threading; report = pathlib.Path(sys.argv[1]); part = report.with_suffix('.part'); "
        "part.write_text(sys.argv[2]); part.rename(report); threading.Event().wait()"
    )
    endless = [sys.executable, "-X", "faulthandler", "-c", program]
    monkeypatch.setattr(side_by_side, "_command", lambda part, path: [*endless, str(path), report])
    monkeypatch.setattr(side_by_side, "ENDING_TIMEOUT_S", 0.5)
    monkeypatch.setattr(side_by_side, "POLL_S", 0.2)
    suite = Suite(tmp_path)
    suite.free.put(LANES[0])
    assert suite.run(Part(("unit",), 0)) == (1 if outcome else 0)
    assert suite.lingering == ["unit"]
    assert "most recent call first" in (tmp_path / "unit.log").read_text()
