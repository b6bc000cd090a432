"""Only what is a sketch in all its parts is given to C++, which would merge others behind the end of its memory."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

import datasketches
import numpy
from hypothesis import given
from hypothesis import strategies as st

from services.pipeline.traffic.latencies import Latencies, settle, sound
from services.pipeline.traffic.sketches import is_whole, plain

LEVELS_AT = 20


def sketch(values: int, accuracy: int = 200) -> bytes:
    made = datasketches.kll_floats_sketch(accuracy)
    made.update(numpy.arange(values, dtype=numpy.float32))
    return bytes(made.serialize())


def changed(whole: bytes, at: int, form: str, value: float) -> bytes:
    made = bytearray(whole)
    struct.pack_into(form, made, at, value)
    return bytes(made)


@pytest.mark.parametrize("accuracy", [8, 9, 200, 1_000, 65_535])
@pytest.mark.parametrize("values", [1, 2, 7, 8, 9, 60, 199, 200, 201, 3_000, 1_000_000])
def test_each_sketch_that_is_one_is_taken(values: int, accuracy: int) -> None:
    whole = sketch(values, accuracy)
    found = sound(whole)
    assert found is not None
    assert (found.n, bytes(found.serialize())) == (values, whole)


def test_a_sketch_of_more_latencies_than_ever_come_is_one_and_beyond_all_numbers_none() -> None:
    into = Latencies()
    for _ in range(24):
        for latency in (into.written() or sketch(1_000), into.written() or sketch(1_000)):
            found = sound(latency)
            assert found is not None
            into.merge(found)
    written = into.written()
    assert written is not None
    assert sound(written) is not None
    assert sound(changed(written, 8, "<Q", 2**63)) is None


def test_sketches_that_were_merged_are_taken() -> None:
    into = Latencies()
    for values, accuracy in ((3_000, 200), (50, 8), (70_000, 1_000), (1, 200), (900, 100)) * 20:
        merged = sound(sketch(values, accuracy))
        assert merged is not None
        into.merge(merged)
        found = sound(into.written() or b"")
        assert found is not None
    assert found is not None
    assert found.n == 20 * (3_000 + 50 + 70_000 + 1 + 900)


BROKEN = {
    "a level ends before it begins": changed(sketch(3_000), LEVELS_AT + 4, "<I", 0),
    "a level is behind all room": changed(sketch(3_000), LEVELS_AT, "<I", 2**31),
    "levels that there are not": changed(sketch(3_000), 18, "<B", 255),
    "no levels": changed(sketch(3_000), 18, "<B", 0),
    "a level too many": changed(sketch(3_000), 18, "<B", 6),
    "another number of latencies": changed(sketch(3_000), 8, "<Q", 2_999),
    "another accuracy": changed(sketch(3_000), 4, "<H", 300),
    "no accuracy": changed(sketch(3_000), 4, "<H", 0),
    "the lowest accuracy is none": changed(sketch(3_000), 16, "<H", 0),
    "a latency that is no number": changed(sketch(3_000), len(sketch(3_000)) - 4, "<f", float("nan")),
    "a single latency that is no number": changed(sketch(1), len(sketch(1)) - 4, "<f", float("nan")),
    "the least latency is no number": changed(sketch(3), LEVELS_AT + 4, "<f", float("nan")),
    "cut off": sketch(3_000)[:-4],
    "longer": sketch(3_000) + bytes(4),
}


@pytest.mark.parametrize("latency", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_somewhere_is_none(latency: bytes) -> None:
    assert sound(latency) is None


@given(
    st.sampled_from([sketch(values, accuracy) for values in (1, 2, 10, 500, 3_000) for accuracy in (8, 200, 1_000)]),
    st.dictionaries(st.integers(0, 60), st.integers(0, 255), min_size=1, max_size=4),
)
def test_whatever_comes_it_merges_or_it_is_none(whole: bytes, changes: dict[int, int]) -> None:
    made = bytearray(whole)
    for at, value in changes.items():
        made[at % len(made)] = value
    into = Latencies()
    for latency in (sketch(50), bytes(made), sketch(900), bytes(made)):
        if (found := sound(latency)) is not None:
            into.merge(found)
    assert sound(into.written() or b"") is not None


def values(latency: bytes | None) -> int:
    found = sound(latency or b"")
    return 0 if found is None else int(found.n)


def is_plain(latency: bytes) -> bool:
    return len(plain([latency])[1].nonzero()[0]) == 1


@pytest.mark.parametrize("accuracy", [8, 9, 200, 1_000, 65_535])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 60, 199, 200])
def test_sketches_that_hold_each_latency_are_taken_as_numbers(count: int, accuracy: int) -> None:
    latencies, counts = plain([sketch(count, accuracy)])
    if count > accuracy:
        assert counts.tolist() == [0]
        return
    assert counts.tolist() == [count]
    assert sorted(latencies.tolist()) == list(range(count))


@pytest.mark.parametrize("latency", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_none_amid_others(latency: bytes) -> None:
    assert not is_plain(latency)
    sums = [Latencies() for _ in range(3)]
    for number, each in enumerate(sums):
        each.waiting = [sketch(number + 1), latency, sketch(3_000), sketch(2)]
    settle(sums)
    assert [values(each.written()) for each in sums] == [3_003, 3_004, 3_005]
    assert not any(each.waiting for each in sums)


wholes = st.sampled_from(
    [sketch(values, accuracy) for values in (1, 2, 10, 200, 500) for accuracy in (8, 200, 1_000)]
)  # fmt: skip


@st.composite
def sketches(draw: st.DrawFn) -> bytes:
    """Whole ones, and ones that are changed or cut somewhere."""
    made = bytearray(draw(wholes))
    for at, value in draw(st.dictionaries(st.integers(0, 40), st.integers(0, 255), max_size=2)).items():
        made[at % len(made)] = value
    return bytes(made[: draw(st.sampled_from([None, None, 0, 3, 8, 11, 12, 32, 36]))])


@given(st.lists(st.lists(sketches(), max_size=5), max_size=5))
def test_many_at_once_come_to_what_they_come_to_one_by_one(waiting: list[list[bytes]]) -> None:
    sums = [Latencies() for _ in waiting]
    for each, its in zip(sums, waiting, strict=True):
        each.waiting = list(its)
    settle(sums)
    for each, its in zip(sums, waiting, strict=True):
        assert values(each.written()) == sum(map(values, its))
        for latency in its:
            assert is_whole(latency) or not is_plain(latency), "nothing counts that is not whole"


def test_latencies_that_are_taken_as_numbers_are_those_of_the_calls() -> None:
    parts = [numpy.random.default_rng(seed).lognormal(1, 1, 30).astype(numpy.float32) for seed in range(6)]
    mine, others = Latencies(), Latencies()
    for part in parts:
        made = datasketches.kll_floats_sketch(200)
        made.update(part)
        mine.waiting.append(bytes(made.serialize()))
    others.waiting.append(sketch(1))
    settle([mine, others])
    assert mine.sketch is not None
    assert sorted(value for value, _ in mine.sketch) == sorted(numpy.concatenate(parts).tolist())
    assert values(others.written()) == 1
