"""Two orders are compared by their start and end: the parts that are the same objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.order import ends_alike

THINGS = [object() for _ in range(4)]
ORDERS = st.lists(st.sampled_from(THINGS), max_size=6)


@given(ORDERS, ORDERS)
def test_the_ends_are_as_long_as_they_can_be_and_do_not_overlap(old: list[object], new: list[object]) -> None:
    start, end = ends_alike(old, new)
    assert start + end <= min(len(old), len(new))
    assert old[:start] == new[:start]
    assert old[len(old) - end :] == new[len(new) - end :]
    if start + end < min(len(old), len(new)):
        assert old[start] is not new[start]
        assert old[-1 - end] is not new[-1 - end]


def test_equal_things_that_are_not_the_same_object_are_no_end() -> None:
    assert ends_alike([["b"], "a"], [["b"], "a"]) == (0, 1)
