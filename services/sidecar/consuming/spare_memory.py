"""Gives memory back to the system once it is not used any more.

Consumers free their prefetched records in pieces all over the heap, and the C library keeps such pieces for itself. So
an instance that has read once would cost megabytes for ever after. C libraries other than glibc have no such call, and
need none.
"""

import contextlib
import ctypes
import threading
import time

EVERY_SECONDS = 5.0
"""The least time between two calls: a pass over the whole heap takes milliseconds."""


class SpareMemory:
    """The process has one.

    `freed` reports that there may be memory to give back; `tidy` gives the memory back in time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_wanted = False
        self._not_before = 0.0
        with contextlib.suppress(OSError, AttributeError):
            self._trim = ctypes.CDLL(None).malloc_trim

    def freed(self) -> None:
        self._is_wanted = True

    def tidy(self) -> None:
        """Cheap where there is nothing to do; called by the threads of all instances."""
        if self._is_wanted and self._lock.acquire(blocking=False):
            try:
                if time.monotonic() >= self._not_before:
                    self._is_wanted = False
                    self._not_before = time.monotonic() + EVERY_SECONDS
                    if hasattr(self, "_trim"):
                        self._trim(0)
            finally:
                self._lock.release()


spare_memory = SpareMemory()
