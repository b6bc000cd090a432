"""Says where the tasks of an event loop and the threads of a process wait. A process that does not end logs it."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

FRAMES = ("cr_frame", "ag_frame", "gi_frame")
AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")
"""The attributes of coroutines, asynchronous generators and generators."""
MOST_TASKS = 50
"""Bound of the tasks of one loop, or of the threads, that are logged."""
MOST_FRAMES = 6
"""Bound of the frames that are logged of one thread."""


def waiting_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """One line a task: its name, and its coroutines from the outermost to the innermost, with file and line of each."""
    return sorted(_chain(task) for task in asyncio.all_tasks(loop))[:MOST_TASKS]


def waiting_threads() -> list[str]:
    """One line for each thread that Python waits for at the end of a process: its name, and its innermost frames."""
    frames = sys._current_frames()
    awaited = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    return sorted(_stack(one.name, frames[one.ident]) for one in awaited if one.ident in frames)[:MOST_TASKS]


def _stack(name: str, frame: FrameType | None) -> str:
    places: list[str] = []
    while frame is not None and len(places) < MOST_FRAMES:
        places.insert(0, _place(frame))
        frame = frame.f_back
    return f"{name}: {' > '.join(places)}"


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
