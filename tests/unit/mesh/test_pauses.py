"""Pauses between attempts."""

import pytest

from mesh.pauses import pause


@pytest.mark.parametrize(("failures", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (1_000_000, 3.0)])
def test_it_is_waited_longer_each_time_up_to_a_bound_and_not_by_all_alike(failures: int, longest: float) -> None:
    waits = {pause(failures, first=0.5, longest=3.0) for _ in range(100)}
    assert len(waits) > 1
    assert all(longest / 2 <= one <= longest for one in waits)
