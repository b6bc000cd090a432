"""The parts of control that run for as long as control does: a part that fails is named, and begins again.

No part ends control. A fault may stay: a row that the database refuses, a cluster with an unexpected answer. Such a
fault would end control at each start, while the other parts and the API can go on serving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from prometheus_client import Counter

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before a part that failed begins again; the pause doubles up to the longest."""
LASTED: Final = 60.0
"""Seconds after which a part counts as recovered: its next pause is the first one again."""

Run = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)
failures_total = Counter(
    "kafka_mesh_control_part_failures_total", "Parts of control that failed and began again.", ["part"]
)


class Parts:
    """Keeps parts running, each by its name."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """A sentence for each part that waits to begin again."""
        return list(self._problems.values())

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def keep(self, name: str, run: Run) -> None:
        """Runs the part until it is stopped, or ends by itself without an error."""
        self.stop(name)
        self._tasks[name] = asyncio.create_task(self._kept(name, run), name=f"control {name}")

    def stop(self, *names: str) -> None:
        for name in names:
            task = self._tasks.pop(name, None)
            self._problems.pop(name, None)
            if task is not None:
                task.cancel()

    async def stop_all(self, seconds: float) -> None:
        """Waits, within a bound, until all parts have ended."""
        tasks = list(self._tasks.values())
        self.stop(*list(self._tasks))
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _kept(self, name: str, run: Run) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            began = loop.time()
            try:
                return await run()
            except Exception as error:
                if loop.time() - began > LASTED:
                    pause = FIRST_PAUSE
                failures_total.labels(name).inc()
                reason = f"{type(error).__name__}: {error}"
                log.exception("a part of control failed", part=name, next_try_s=pause)
                self._problems[name] = (
                    f"control's part {name!r} failed and begins again ({reason}); control's log says more"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self._problems.pop(name, None)
