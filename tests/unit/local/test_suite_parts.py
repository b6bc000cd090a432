"""`make test` runs everything that the project promises, whichever way it is cut up."""

from __future__ import annotations

from itertools import pairwise

from tests.side_by_side import AFTERWARDS, ELSEWHERE, HERE, LANES, PARTS, Part


def test_every_test_is_in_one_part() -> None:
    elsewhere = Part(ELSEWHERE, 0)
    for file in HERE.rglob("test_*.py"):
        if AFTERWARDS.has(file):
            continue  # the other parts leave it out
        holding = [part for part in (elsewhere, *PARTS) if part.has(file)]
        assert len(holding) == 1, f"{file.relative_to(HERE)} is in {len(holding)} parts"


def test_lanes_do_not_share_ports() -> None:
    ranges = sorted(tuple(map(int, ports.split("-"))) for ports in LANES)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
