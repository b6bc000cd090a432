"""The number of drivers that this machine can run at once."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 5
"""The limit if the settings have none; each driver has a JVM of its own."""
BESIDE_HEAP = 700 * 1024**2
"""Bytes that a driver needs beside its JVM's heap: the JVM itself, Python, and the workers that read Kafka."""
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = {"m": 1024**2, "g": 1024**3}


def drivers_at_a_time(heap: str, continuous_jobs: int, *, memory: int | None = None, cores: int | None = None) -> int:
    """Number of orders that run at once beside the continuous jobs: limited by memory and cores, at least one."""
    each = int(heap[:-1]) * _UNITS[heap[-1]] + BESIDE_HEAP
    room = (_memory() if memory is None else memory) - continuous_jobs * each
    return max(1, min(MOST, (os.cpu_count() or 1) if cores is None else cores, room // each))


def _memory() -> int:
    """Bytes of memory of this machine, or of this container."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in CGROUP_LIMITS:
        try:
            said = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if said.isdecimal():  # "max" means no limit
            return min(physical, int(said))
    return physical
