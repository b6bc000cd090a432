"""Latencies of a rehearsal in buckets that gateways count and control adds up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from mesh.rpc import rehearsals

FIRST_MS: Final = 0.1
"""The upper bound of bucket 0."""
PER_DOUBLING: Final = 8
"""Buckets from a latency to its double: a quantile is too high by 9 % at most."""
LAST: Final = 160
"""The last bucket has all that takes longer: 105 s."""


def bucket_of(milliseconds: float) -> int:
    if milliseconds <= FIRST_MS:
        return 0
    return min(LAST, math.ceil(PER_DOUBLING * math.log2(milliseconds / FIRST_MS)))


def quantile_ms(latencies: Mapping[int, int], part: float, longest_ms: float) -> float:
    """The latency that this part of all answers does not exceed; 0 without answers."""
    total, seen = sum(latencies.values()), 0
    for bucket, answers in sorted(latencies.items()):
        seen += answers
        if seen >= part * total:
            return min(longest_ms, FIRST_MS * 2 ** (bucket / PER_DOUBLING))
    return 0.0


def longest_ms(of: rehearsals.RehearsalFigures) -> float:
    return of.longest.ToMicroseconds() / 1000


def added(figures: Iterable[rehearsals.RehearsalFigures], *, by_topic: bool) -> list[rehearsals.RehearsalFigures]:
    """The figures of each cluster, added up over gateways, and over topics unless `by_topic`."""
    found: dict[tuple[str, str], rehearsals.RehearsalFigures] = {}
    for each in figures:
        topic = each.topic if by_topic else ""
        into = found.setdefault((topic, each.cluster_name), rehearsals.RehearsalFigures(topic=topic))
        into.rehearsal_id, into.cluster_name = each.rehearsal_id, each.cluster_name
        into.produces += each.produces
        into.stored += each.stored
        into.bytes += each.bytes
        if each.longest.ToMicroseconds() > into.longest.ToMicroseconds():
            into.longest.CopyFrom(each.longest)
        for name, answers in each.errors.items():
            into.errors[name] += answers
        for name, dropped in each.dropped.items():
            into.dropped[name] += dropped
        for bucket, answers in each.latencies.items():
            into.latencies[bucket] += answers
    return [found[key] for key in sorted(found)]
