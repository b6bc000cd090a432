"""The monotonic clock, in seconds: compiled modules read it in C (`clock.pxd`), without an object of Python."""

from time import monotonic


def now() -> float:
    """That of an event loop stands still while a turn of it lasts."""
    return monotonic()
