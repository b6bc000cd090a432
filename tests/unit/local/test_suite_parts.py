"""`make test` runs everything that the project promises, whichever way it is cut up."""

from __future__ import annotations

from itertools import pairwise

from tests.side_by_side import ELSEWHERE, HERE, PARTS


def test_every_folder_of_tests_is_in_one_part() -> None:
    top = {path.name for path in HERE.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert sorted([*ELSEWHERE, *(folder for part in PARTS for folder in part.folders)]) == sorted(top)


def test_parts_do_not_share_ports() -> None:
    ranges = sorted(tuple(map(int, part.ports.split("-"))) for part in PARTS)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
