"""Whether all that was acknowledged is stored, once."""

from collections import Counter
from collections.abc import Iterable


def assert_stored_once(stored: Iterable[str], acknowledged: Iterable[str]) -> None:
    """Says which records are not there, and which are there more often, instead of all there are."""
    found, wanted = Counter(stored), Counter(acknowledged)
    lost, surplus = wanted - found, found - wanted
    assert not lost, f"{lost.total()} of {wanted.total()} acknowledged records are not stored: {sorted(lost)[:20]}"
    assert not surplus, (
        f"{surplus.total()} of {found.total()} stored records are there again, or were never acknowledged: "
        f"{sorted(surplus)[:20]}"
    )
