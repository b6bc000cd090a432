"""Reads a key of a store, as of the last committed rounds, for callers of this sidecar."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.sidecar.streams.running_topology import RunningTopology
from services.sidecar.streams.state import EntryKey, from_text, key_text
from services.sidecar.streams.store import find, windows_of
from services.sidecar.streams.worker import State

LOOK_SECONDS = 0.1
MAX_WINDOWS = 1_000
FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class Span:
    """The range of windows to read, by their starts, in milliseconds since the epoch; both ends are included."""

    first: int = 0
    last: int = FOREVER
    limit: int = MAX_WINDOWS


class NoSuchStoreError(Exception):
    """The topology has no store of this name."""


class NotHereError(Exception):
    """This sidecar has no value for the key. `elsewhere`: other instances have partitions that may have the key."""

    def __init__(self, text: str, *, elsewhere: bool) -> None:
        super().__init__(text)
        self.elsewhere = elsewhere


class NotReadyError(Exception):
    """State is being restored, and was not ready in time."""


async def read_key(topology: RunningTopology, store: str, key: object, span: Span, timeout: float) -> Any:
    """The key's value; for a store of windows, all values within the span, with their bounds.

    Waits for stores that are opening. NoSuchStoreError, NotHereError, NotReadyError.
    """
    until = time.monotonic() + timeout
    text = key_text(key)
    while True:
        spec = topology.plan.stores.get(store)
        if spec is None:
            names = ", ".join(sorted(topology.plan.stores)) or "none"
            raise NoSuchStoreError(f"Topology {topology.plan.name!r} has no store {store!r} (it has: {names})")
        held = topology.held(store)
        window = spec.window.size if spec.window is not None else None
        found = await asyncio.to_thread(_looked_up, list(held.values()), text, window, span)
        if found is not None:
            return found
        status = topology.status()
        if status.state is State.RUNNING:
            part = topology.plan.with_store(store)
            partitions = topology.partitions.get(part.lead, 0) if part is not None else 0
            raise NotHereError(
                f"Store {store!r} has nothing for that key in the partitions that are here "
                f"({', '.join(map(str, held)) or 'none'} of {partitions})",
                elsewhere=len(held) < partitions,
            )
        if time.monotonic() >= until:
            why = f": {status.reason}" if status.reason else ""
            raise NotReadyError(f"Topology {topology.plan.name!r} is {status.state.value}{why}; ask again")
        await asyncio.sleep(LOOK_SECONDS)


def _looked_up(files: list[Path], key: bytes, window: int | None, span: Span) -> Any:
    for file in files:
        if window is None:
            value = find(file, EntryKey(0, key))
            if value is not None:
                return from_text(value)
        elif found := windows_of(file, key, span.first, span.last, span.limit):
            return [{"start": start, "end": start + window, "value": from_text(value)} for start, value in found]
    return None
