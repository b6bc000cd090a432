"""From one order of things to another: which of them can stay where they are, so that the fewest move."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import is_


def ends_alike(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """How many things at the start, and how many at the end, are the same objects in both; no thing counts twice."""
    start = [*map(is_, old, new), False].index(False)
    left = min(len(old), len(new)) - start
    end = [*map(is_, old[: -left - 1 : -1], new[: -left - 1 : -1]), False].index(False)
    return start, end


def staying_in_order(ranks: Sequence[float | None]) -> list[bool]:
    """For each thing whether it stays: a longest rising subsequence of the places that they had (None: it is new)."""
    tails: list[float] = []
    tail_places: list[int] = []
    previous: list[int | None] = [None] * len(ranks)
    for place, rank in enumerate(ranks):
        if rank is None:
            continue
        length = bisect_left(tails, rank)
        previous[place] = tail_places[length - 1] if length else None
        if length == len(tails):
            tails.append(rank)
            tail_places.append(place)
        else:
            tails[length], tail_places[length] = rank, place
    stays = [False] * len(ranks)
    walker = tail_places[-1] if tail_places else None
    while walker is not None:
        stays[walker] = True
        walker = previous[walker]
    return stays
