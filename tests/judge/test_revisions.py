"""Which routing table an operation met is said only where looks before it and behind it agree."""

from __future__ import annotations

import pytest

from judge.systems.revisions import Look, Revisions


@pytest.mark.parametrize(
    ("start", "end", "revision"),
    [
        pytest.param(2, 3, 7, id="between two looks that agree"),
        pytest.param(6, 9, 0, id="while the table changed"),
        pytest.param(4.5, 4.7, 7, id="while one look was under way, with others around it"),
        pytest.param(0, 1, 0, id="before the first look had ended"),
        pytest.param(20, 21, 0, id="behind the last look"),
    ],
)
def test_an_operation_has_the_revision_of_all_looks_around_it(start: float, end: float, revision: int) -> None:
    looks = Revisions({})
    for look in (Look(0, 1, 7), Look(4, 5, 7), Look(5.5, 6, 7), Look(10, 11, 8)):
        looks.saw("gateway", look)
    assert looks.during("gateway", start, end) == revision


def test_a_look_that_lasts_as_long_as_an_operation_says_nothing_of_it() -> None:
    looks = Revisions({})
    for look in (Look(0, 1, 7), Look(2, 9, 7), Look(10, 11, 8)):
        looks.saw("gateway", look)
    assert looks.during("gateway", 5, 6) == 0
