"""Says where each task of an event loop waits: what a process that does not end has to tell before it is ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import FrameType
from typing import Any

FRAMES = ("cr_frame", "ag_frame", "gi_frame")
AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")
"""The attributes of coroutines, asynchronous generators and generators."""
MOST_TASKS = 50
"""Bound of the tasks that are logged of one loop."""


def waiting_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """One line a task: its name, and its coroutines from the outermost to the innermost, with file and line of each."""
    return sorted(_chain(task) for task in asyncio.all_tasks(loop))[:MOST_TASKS]


def _chain(task: asyncio.Task[Any]) -> str:
    places: list[str] = []
    awaitable: Any = task.get_coro()
    while awaitable is not None:
        frame = _first(awaitable, FRAMES)
        places.append(_place(frame) if frame is not None else type(awaitable).__name__)
        awaitable = _first(awaitable, AWAITED)
    return f"{task.get_name()}: {' > '.join(places)}"


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _first(awaitable: Any, names: tuple[str, ...]) -> Any:
    return next((found for name in names if (found := getattr(awaitable, name, None)) is not None), None)
