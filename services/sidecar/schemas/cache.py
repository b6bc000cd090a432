"""A cache for many threads: the first thread that asks for a key looks it up, the others wait for the same answer.

A value is kept for the time that its caller names. If the cache is full, the least recently used value leaves. A
failure is kept too, for a short time, so that a key that many callers ask for in vain costs few look-ups. If a look-up
fails for a passing reason, an expired value is used again: an old answer is better than none.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Outcome(Enum):
    """The source of an answer; the values are those of the metric."""

    HIT = "hit"
    MISS = "miss"
    SHARED = "shared"
    """The answer came from a look-up that another thread had begun."""
    STALE = "stale"
    """The answer is an expired value, because the look-up failed for a passing reason."""
    FAILED = "failed"
    """The answer is the failure of this look-up, or of a recent look-up."""


@dataclass(slots=True)
class _Found(Generic[V]):
    value: V
    until: float
    """The end of the value's time on the clock; infinity means for ever."""


@dataclass(slots=True)
class _Failure:
    error: Exception
    until: float


class SingleFlightCache(Generic[K, V]):
    """Keys, and the values or failures that were found for them."""

    def __init__(
        self,
        capacity: int,
        *,
        failure_seconds: float,
        patience_seconds: float,
        passing: tuple[type[Exception], ...] = (),
        on_outcome: Callable[[K, Outcome], None] = lambda key, outcome: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience_seconds`: the longest wait for another thread's look-up, which should end sooner. `passing`:
        failures that say nothing about the key; an expired value is better than such a failure.
        """
        self._capacity = capacity
        self._failure_seconds = failure_seconds
        self._patience_seconds = patience_seconds
        self._passing = passing
        self._on_outcome = on_outcome
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, _Found[V] | _Failure] = OrderedDict()
        self._flights: dict[K, Future[V]] = {}

    def known(self, key: K) -> V | None:
        """The value, if the cache has it and its time is not over. Never waits; safe on the event loop."""
        with self._lock:
            entry = self._fresh(key)
        if not isinstance(entry, _Found):
            return None
        self._on_outcome(key, Outcome.HIT)
        return entry.value

    def get(self, key: K, look_up: Callable[[], V], seconds: float = float("inf")) -> V:
        """The value. A missing value is looked up, and then kept for `seconds`. Raises the exception of the look-up.

        TimeoutError, when another thread's look-up takes too long.
        """
        with self._lock:
            entry = self._fresh(key)
            flight = self._flights.get(key)
            if entry is None and flight is None:
                mine = self._flights[key] = Future()
        match entry, flight:
            case _Found(value), _:
                self._on_outcome(key, Outcome.HIT)
                return value
            case _Failure(error), _:
                self._on_outcome(key, Outcome.FAILED)
                raise copy(error)  # one object raised in many threads would grow its traceback for ever
            case None, Future():
                value = flight.result(self._patience_seconds)
                self._on_outcome(key, Outcome.SHARED)
                return value
        return self._looked_up(key, mine, look_up, seconds)

    def keep(self, key: K, value: V) -> V:
        """Keeps a value from elsewhere for ever. Returns the cached value, if the cache had one already."""
        with self._lock:
            entry = self._fresh(key)
            if isinstance(entry, _Found):
                return entry.value
            self._put(key, _Found(value, float("inf")))
        return value

    def forget(self, key: K) -> None:
        """Drops the entry of a key, because it is no longer true."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Drops all entries; look-ups that run still deliver their values."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _looked_up(self, key: K, mine: Future[V], look_up: Callable[[], V], seconds: float) -> V:
        outcome = Outcome.MISS
        try:
            entry = _Found(look_up(), self._clock() + seconds)
        except Exception as error:  # the threads that wait get every exception too
            until = self._clock() + self._failure_seconds
            with self._lock:
                old = self._entries.get(key)
            if not (isinstance(old, _Found) and isinstance(error, self._passing)):
                self._landed(key, _Failure(error, until))
                mine.set_exception(error)
                self._on_outcome(key, Outcome.FAILED)
                raise
            entry, outcome = _Found(old.value, until), Outcome.STALE
        self._landed(key, entry)
        mine.set_result(entry.value)
        self._on_outcome(key, outcome)
        return entry.value

    def _landed(self, key: K, entry: _Found[V] | _Failure) -> None:
        with self._lock:
            self._put(key, entry)
            del self._flights[key]

    def _fresh(self, key: K) -> _Found[V] | _Failure | None:
        entry = self._entries.get(key)
        if entry is None or self._clock() >= entry.until:
            return None
        self._entries.move_to_end(key)
        return entry

    def _put(self, key: K, entry: _Found[V] | _Failure) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
