"""Whether bytes are a KLL sketch in all that C++ takes on trust: no I/O, no Spark.

`datasketches` checks some of what it reads. Where levels are not what they say, or a latency is no number, it merges
behind the end of its memory, or for ever: that ends the worker, and each later one that meets the report again.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise

import numpy

from services.pipeline.traffic.reports import LARGEST_NUMBER

LONG, SHORT = (5, 1), (2, 2)
"""Words of the preamble, and version: of a sketch with levels, and of one with a single item."""
FAMILY = 15
LEAST_OF_A_LEVEL = 8
MOST_LEVELS = 60
IS_EMPTY, IS_SINGLE = 1, 4
_BEGIN = struct.Struct("<BBBBHBx")
_NUMBERS = struct.Struct("<QHBx")
_LEVELS = [struct.Struct(f"<{count}I") for count in range(MOST_LEVELS + 1)]
_ITEM = 4


def is_whole(sketch: bytes) -> bool:
    """Whether it is one of floats with at least one item, whose parts fit together."""
    if len(sketch) < _BEGIN.size + _ITEM:
        return False
    words, version, family, flags, accuracy, least = _BEGIN.unpack_from(sketch)
    if family != FAMILY or least != LEAST_OF_A_LEVEL or accuracy < LEAST_OF_A_LEVEL or flags & IS_EMPTY:
        return False
    if (words, version) == SHORT:
        return bool(flags & IS_SINGLE) and _are_numbers(sketch, _BEGIN.size, 1)
    return (words, version) == LONG and not flags & IS_SINGLE and _has_whole_levels(sketch, accuracy)


def _has_whole_levels(sketch: bytes, accuracy: int) -> bool:
    at = _BEGIN.size + _NUMBERS.size
    if len(sketch) < at:
        return False
    count, lowest_accuracy, levels = _NUMBERS.unpack_from(sketch, _BEGIN.size)
    if not (1 <= levels <= MOST_LEVELS and LEAST_OF_A_LEVEL <= lowest_accuracy <= accuracy):
        return False
    if len(sketch) < at + _LEVELS[levels].size:
        return False
    room = _room(accuracy, levels)
    bounds = (*_LEVELS[levels].unpack_from(sketch, at), room)
    weight = 0
    for height, (begin, end) in enumerate(pairwise(bounds)):
        if begin > end:
            return False
        weight += (end - begin) << height
    items = room - bounds[0]  # behind the smallest and the largest one
    return 0 < weight == count <= LARGEST_NUMBER and _are_numbers(sketch, at + _LEVELS[levels].size, 2 + items)


def _are_numbers(sketch: bytes, begin: int, count: int) -> bool:
    """Whether all from there on is so many numbers."""
    if len(sketch) != begin + count * _ITEM:
        return False
    return not numpy.isnan(numpy.frombuffer(sketch, numpy.float32, count, begin)).any()


@cache
def _room(accuracy: int, levels: int) -> int:
    """Items that a sketch has room for: each level two thirds of the one above it."""
    return sum(max(LEAST_OF_A_LEVEL, ((accuracy << (depth + 1)) // 3**depth + 1) >> 1) for depth in range(levels))
