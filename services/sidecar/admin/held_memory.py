"""Takes memory on purpose, step by step, and gives it back, for the memory assault."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from services.sidecar.admin.assaults import Assault, MemoryAssault

CEILING_BYTES = 1024 * 1024 * 1024
"""The most that is held, whatever fraction is requested: enough to be felt, too little to take the machine down."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def available_bytes() -> int:
    """The memory that this process may use: the limit of its container, else the machine's memory."""
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        limit = "max"
    if limit.isdecimal():
        return int(limit)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class HeldMemory:
    """The memory of one assault at a time; another strike meanwhile adds nothing."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.bytes = 0

    def begin(self, assault: MemoryAssault) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._hold(assault), name="memory assault")

    def changed(self, assault: Assault) -> None:
        """Other orders: a memory assault that is put away gives all back."""
        if isinstance(assault, MemoryAssault) and not assault.is_armed and self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Gives all back now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _hold(self, assault: MemoryAssault) -> None:
        held: list[bytearray] = []
        try:
            for size in assault.steps(available_bytes(), CEILING_BYTES):
                held.append(await asyncio.to_thread(_touched, size))
                self.bytes += size
                await asyncio.sleep(assault.memory_milliseconds_wait_next_increase / 1000)
            await asyncio.sleep(assault.memory_milliseconds_hold_filled_memory / 1000)
        finally:
            held.clear()
            self.bytes = 0


def _touched(size: int) -> bytearray:
    """Allocated memory with each page written: a page that was never written costs nothing."""
    taken = bytearray(size)
    taken[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(taken[:: os.sysconf("SC_PAGE_SIZE")])
    return taken
