"""Checks that bytes are a valid KLL sketch, in all points that the C++ library does not check: no I/O, no Spark.

`datasketches` checks only a part of its input. If the levels contradict the sizes, or a latency is NaN, a merge reads
behind the end of its memory, or never ends. That ends the worker, and each later one that gets the same report.

Most sketches are *plain*: they hold each latency itself, in one level. Many plain sketches are checked together
(`plain`), as columns of words of 32 bits; any other sketch is checked by itself (`is_whole`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy

from services.pipeline.traffic.reports import LARGEST_NUMBER

LONG, SHORT = (5, 1), (2, 2)
"""Words of the preamble, and version: of a sketch with levels, and of a sketch with a single item."""
FAMILY = 15
LEAST_OF_A_LEVEL = 8
MOST_LEVELS = 60
IS_EMPTY, IS_SINGLE = 1, 4
_BEGIN = struct.Struct("<BBBBHBx")
_NUMBERS = struct.Struct("<QHBx")
_LEVELS = [struct.Struct(f"<{count}I") for count in range(MOST_LEVELS + 1)]
_ITEM = 4
_PLAIN, _SINGLE = (words | version << 8 | FAMILY << 16 for words, version in (LONG, SHORT))
"""The first word, without its flags."""
_BEFORE, _BEFORE_SINGLE = 8, 2
"""Words before the latencies; they include the smallest and the largest latency."""
_EXTREMES = 6

Numbers = numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]


def is_whole(sketch: bytes) -> bool:
    """Whether the bytes are a consistent sketch of floats with at least one item."""
    if len(sketch) < _BEGIN.size + _ITEM:
        return False
    words, version, family, flags, accuracy, least = _BEGIN.unpack_from(sketch)
    if family != FAMILY or least != LEAST_OF_A_LEVEL or accuracy < LEAST_OF_A_LEVEL or flags & IS_EMPTY:
        return False
    if (words, version) == SHORT:
        return bool(flags & IS_SINGLE) and _are_numbers(sketch, _BEGIN.size, 1)
    return (words, version) == LONG and not flags & IS_SINGLE and _has_whole_levels(sketch, accuracy)


def plain(sketches: Sequence[bytes]) -> tuple[Numbers, Numbers]:
    """The latencies of all plain sketches, one behind the other, and the number of each sketch.

    The number is 0 for a sketch that is not plain, or not valid."""
    whole = [each if not len(each) % _ITEM else b"" for each in sketches]
    sizes = numpy.fromiter(map(len, whole), numpy.int64, len(whole)) // _ITEM
    words = numpy.frombuffer(b"".join((*whole, bytes(_BEFORE * _ITEM))), numpy.uint32)
    ends = sizes.cumsum()
    begins = ends - sizes
    form, flags = words[begins] & 0xFFFFFF, words[begins] >> 24
    accuracy, least = words[begins + 1] & 0xFFFF, words[begins + 1] >> 16 & 0xFF
    is_ours = (least == LEAST_OF_A_LEVEL) & (accuracy >= LEAST_OF_A_LEVEL) & (flags & IS_EMPTY == 0)
    is_single = is_ours & (sizes == _BEFORE_SINGLE + 1) & (form == _SINGLE) & (flags & IS_SINGLE != 0)
    is_plain = is_ours & (sizes > _BEFORE) & (form == _PLAIN) & (flags & IS_SINGLE == 0)
    counts = sizes - _BEFORE
    is_plain &= (words[begins + 2] == counts) & (words[begins + 3] == 0)
    lowest, levels = words[begins + 4] & 0xFFFF, words[begins + 4] >> 16 & 0xFF
    is_plain &= (levels == 1) & (lowest >= LEAST_OF_A_LEVEL) & (lowest <= accuracy)
    is_plain &= words[begins + 5] + counts == accuracy  # the start of its only level, which ends with its room
    numbers = words.view(numpy.float32)
    is_none = numpy.isnan(numbers)
    if is_none.any():
        none_until = numpy.concatenate(([0], is_none.cumsum()))
        is_plain &= none_until[ends] == none_until[numpy.minimum(begins + _EXTREMES, ends)]
        is_single &= none_until[ends] == none_until[numpy.minimum(begins + _BEFORE_SINGLE, ends)]
    is_latency = numpy.zeros(len(words), numpy.int8)
    is_latency[begins[is_plain] + _BEFORE] = 1
    is_latency[begins[is_single] + _BEFORE_SINGLE] = 1
    is_latency[ends[is_plain | is_single]] = -1  # the next sketch begins with words that are no latencies
    latencies = numbers[is_latency.cumsum(dtype=numpy.int8).view(numpy.bool_)]
    return latencies, numpy.where(is_plain, counts, is_single)


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
    items = room - bounds[0]  # after the smallest and the largest latency
    return 0 < weight == count <= LARGEST_NUMBER and _are_numbers(sketch, at + _LEVELS[levels].size, 2 + items)


def _are_numbers(sketch: bytes, begin: int, count: int) -> bool:
    """Whether the rest of the sketch is exactly this many numbers."""
    if len(sketch) != begin + count * _ITEM:
        return False
    return not numpy.isnan(numpy.frombuffer(sketch, numpy.float32, count, begin)).any()


@cache
def _room(accuracy: int, levels: int) -> int:
    """Items that a sketch has room for: each level has two thirds of the one above it."""
    return sum(max(LEAST_OF_A_LEVEL, ((accuracy << (depth + 1)) // 3**depth + 1) >> 1) for depth in range(levels))
