"""How many drivers this machine can have at a time."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 5
"""Unless the settings say another number; each has a JVM of its own."""
BESIDE_HEAP = 700 * 1024**2
"""Bytes that a driver has beside the heap of its JVM: the JVM itself, Python, and the workers that read Kafka."""
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = {"m": 1024**2, "g": 1024**3}


def drivers_at_a_time(heap: str, continuous_jobs: int, *, memory: int | None = None, cores: int | None = None) -> int:
    """Orders at a time beside the continuous jobs: as many as memory holds and there are cores for, at least one."""
    each = int(heap[:-1]) * _UNITS[heap[-1]] + BESIDE_HEAP
    room = (_memory() if memory is None else memory) - continuous_jobs * each
    return max(1, min(MOST, (os.cpu_count() or 1) if cores is None else cores, room // each))


def _memory() -> int:
    """Bytes of this machine, or of this container."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in CGROUP_LIMITS:
        try:
            said = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if said.isdecimal():  # "max" where there is none
            return min(physical, int(said))
    return physical
