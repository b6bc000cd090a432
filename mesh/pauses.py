"""How long it is waited before something that failed is tried again, wherever nobody else says it."""

import random

MAX_DOUBLINGS = 30
"""More would be no longer than any bound; a power of an endless count would overflow."""


def pause(failures: int, first: float, longest: float) -> float:
    """Seconds: twice as long with each failure in a row, and not the same for all who wait for one thing."""
    return min(first * 2.0 ** min(failures - 1, MAX_DOUBLINGS), longest) * random.uniform(0.5, 1)
