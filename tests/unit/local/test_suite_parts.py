"""`make test` runs everything that the project promises, whichever way it is cut up."""

from __future__ import annotations

from itertools import pairwise

from tests.side_by_side import AFTERWARDS, ELSEWHERE, HERE, LANES, PARTS


def test_every_test_is_in_one_part() -> None:
    afterwards = [HERE / folder for folder in AFTERWARDS.folders]
    folders = [HERE / folder for folder in (*ELSEWHERE, *(folder for part in PARTS for folder in part.folders))]
    for file in HERE.rglob("test_*.py"):
        if any(file.is_relative_to(folder) for folder in afterwards):
            continue  # the other parts leave it out
        holding = [folder for folder in folders if file.is_relative_to(folder)]
        assert len(holding) == 1, f"{file.relative_to(HERE)} is in {len(holding)} parts"


def test_lanes_do_not_share_ports() -> None:
    ranges = sorted(tuple(map(int, ports.split("-"))) for ports in LANES)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
