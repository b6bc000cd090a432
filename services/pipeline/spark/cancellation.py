"""Work on Spark that a stop cancels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

CANCEL_S = 0.5
"""Seconds between two attempts to cancel."""
Result = TypeVar("Result")


def unless_stopped(
    stopping: threading.Event,
    work: Callable[[], Result],
    cancel: Callable[[], None],
    *,
    end_s: float,
    every_s: float = CANCEL_S,
    meanwhile: Callable[[], None] = lambda: None,
) -> Result | None:
    """Returns the result of `work`, or None after a stop; `work` has `end_s` seconds to end then.

    Calls `meanwhile` each `every_s` seconds.
    """
    results: list[Result] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  # raised again below, in the waiting thread
            failures.append(error)

    thread = threading.Thread(target=run, name="cancellable", daemon=True)
    thread.start()
    while thread.is_alive() and not stopping.is_set():
        thread.join(every_s)
        meanwhile()
    deadline = time.monotonic() + end_s
    while thread.is_alive() and time.monotonic() < deadline:
        cancel()  # repeated, because Spark may be starting, or the job may be about to begin
        thread.join(CANCEL_S)
    if results:
        return results[0]
    if stopping.is_set():
        return None
    raise failures[0]
