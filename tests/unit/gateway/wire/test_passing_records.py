"""Records that go by in pieces are as many as those that lie there whole."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.wire.batches import MOST_COUNTED, count_records
from services.gateway.wire.passing_records import PassingRecords
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.wire.records import batch

pieces_of_it = st.lists(st.integers(0, 150), max_size=20)


@settings(max_examples=60 * REPEAT, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 200), max_size=8), cuts=pieces_of_it, cut_short=st.integers(0, 80), junk=st.binary()
)
def test_cut_anywhere(sizes: list[int], cuts: list[int], cut_short: int, junk: bytes) -> None:
    whole = b"".join(batch(bytes(size)) for size in sizes) + junk
    whole = whole[: max(0, len(whole) - cut_short)]
    passing = PassingRecords(len(whole))
    rest = memoryview(whole + b"tags")
    for cut in cuts:
        passing.come(rest[:cut])
        rest = rest[cut:]
    passing.come(rest)
    assert passing.records == count_records(whole, 0, len(whole))


def test_of_very_many_the_rest_is_taken_to_be_like_the_first() -> None:
    whole = b"".join(batch(b"same") for _ in range(MOST_COUNTED + 500))
    passing = PassingRecords(len(whole))
    for at in range(0, len(whole), 1000):
        passing.come(memoryview(whole)[at : at + 1000])
    assert passing.records == count_records(whole, 0, len(whole)) == MOST_COUNTED + 500
