"""A tail as server-sent events: rows of a table, and what the viewer has to know."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from services.console.asking import Ask
from services.console.live import event
from services.console.outcomes import CallError
from services.console.views.records import turns

RETRY_MS = 30_000
"""Milliseconds until a browser comes again after a refusal."""


async def events_of(ask: Ask, goes_on: Callable[[], bool], row: Callable[[Any], str]) -> AsyncGenerator[str, None]:
    """`row` makes HTML of cells, with escapes. Ends when the tail ends, or with the reason why there is none."""
    told = ""
    try:
        async with contextlib.aclosing(turns(ask, goes_on)) as found:
            async for rows, problem in found:
                if problem != told:
                    told = problem
                    yield event("trouble", problem)
                if rows:
                    yield _rows("".join(row(each) for each in rows))
                else:
                    yield event("waiting", "")  # so that the console notices a viewer who has left
    except CallError as failure:
        yield f"retry: {RETRY_MS}\n{event('trouble', ' '.join((str(failure), *failure.details)))}"


def _rows(markup: str) -> str:
    """Each line of the markup is a line of the event."""
    return "event: record\n" + "".join(f"data: {line}\n" for line in markup.splitlines()) + "\n"
