"""The whole suite leaves no test out."""

from __future__ import annotations

from tests.side_by_side import AFTERWARDS, ELSEWHERE, HERE, PARTS


def test_each_test_belongs_to_one_run() -> None:
    folders = [folder for part in (*PARTS, AFTERWARDS) for folder in part.folders]
    for test in HERE.rglob("test_*.py"):
        place = test.relative_to(HERE).as_posix()
        if not place.startswith(ELSEWHERE):
            runs = [folder for folder in folders if place.startswith(f"{folder}/")]
            assert len(runs) == 1 or runs == ["e2e", "e2e/pipeline"], f"{place}: {runs}"
