"""Carries audit events from control to a target: two sources, one bounded queue, a position behind what has arrived.

Theory of operation
1. A thread for each source puts events into the queue, and waits while the queue is full. So a target that is away
   holds the sources; control and Kafka keep what comes meanwhile.
2. The events leave in the order in which they come. The position moves on after the target has flushed. So an event may
   arrive twice (`metadata.uid` is the same), and none is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Empty, Queue
from threading import Thread
from typing import Any, Final

import click

from mesh.rpc import admin, audit
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.record_events import record_events
from meshctl.reopening import reopened
from meshctl.siem.ocsf import of_call, of_record
from meshctl.siem.position import Position
from meshctl.siem.targets import Target

MOST_WAITING: Final = 2_000
"""Events; about 2 MB."""
POLL_S: Final = 2.0
"""Seconds between two questions for new calls."""
FLUSH_EVENTS, FLUSH_S = 500, 1.0
"""After so many events, or so many seconds, the target flushes and the position is kept."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
RECORDS_OVERLAP: Final = timedelta(minutes=5)
"""An export that goes on begins so long before the last record: clusters do not give their events in order of time."""


@dataclass(frozen=True, slots=True)
class _Found:
    event: dict[str, Any] | None
    """None: the source has ended."""
    call: int = 0
    record_ms: int = 0
    failure: Exception | None = None


def calls(connection: Connection, position: Position, since: datetime | None, *, follow: bool) -> Iterator[_Found]:
    """The calls behind the position."""
    request = admin.ListAuditEventsRequest(after=position.call, page_size=PAGE_SIZE)
    if since is not None:
        request.start_time.FromDatetime(since)

    def asked() -> Iterator[admin.AuditEvent | None]:
        while True:
            found = connection.call(connection.decisions.ListAuditEvents, request).audit_events
            yield None  # control answers
            for each in found:
                yield each
                request.after = each.sequence
            if len(found) < PAGE_SIZE:
                if not follow:
                    return
                time.sleep(POLL_S)

    for event in reopened(asked, again=follow):
        if event is not None:
            yield _Found(of_call(event), call=event.sequence)


def records(connection: Connection, since: datetime, *, follow: bool) -> Iterator[_Found]:
    """The audit events of records from a time on."""
    request = audit.TailAuditRequest(stop_at_end=not follow)
    request.start_time.FromDatetime(since)
    for event in record_events(connection, request):
        yield _Found(of_record(event), record_ms=event.time.ToMilliseconds())


def last_call(connection: Connection) -> int:
    """The number of the newest call; 0 if there is none."""
    found = connection.call(connection.decisions.ListAuditEvents, admin.ListAuditEventsRequest(page_size=1))
    return found.audit_events[0].sequence if found.audit_events else 0


def records_since(position: Position, since: datetime | None) -> datetime:
    """The time from which an export reads the records."""
    if position.record_ms:
        return datetime.fromtimestamp(position.record_ms / 1000, UTC) - RECORDS_OVERLAP
    return since or datetime.now(UTC)


def carry(
    sources: list[Iterator[_Found]],
    target: Target,
    position: Position,
    keep: Callable[[Position], None],
    *,
    patient: bool,
) -> int:
    """Carries events until all sources have ended; returns their number. `patient`: waits for a target that is away."""
    waiting: Queue[_Found] = Queue(MOST_WAITING)
    for source in sources:
        Thread(target=_drain, args=(source, waiting), daemon=True, name="export").start()
    open_sources, carried, unkept = len(sources), 0, 0
    flushed = time.monotonic()

    def settle() -> None:
        insistently(target.flush, patient)
        keep(position)

    try:
        while open_sources:
            found = _next(waiting)
            if found is not None and found.failure is not None:
                raise found.failure
            if found is not None and found.event is None:
                open_sources -= 1
            elif found is not None and found.event is not None:
                insistently(partial(target.send, found.event), patient)
                carried, unkept = carried + 1, unkept + 1
                position.call = max(position.call, found.call)
                position.record_ms = max(position.record_ms, found.record_ms)
            if unkept and (unkept >= FLUSH_EVENTS or time.monotonic() - flushed >= FLUSH_S):
                settle()
                unkept, flushed = 0, time.monotonic()
    except KeyboardInterrupt:
        settle()
        raise
    settle()
    return carried


def _next(waiting: Queue[_Found]) -> _Found | None:
    try:
        return waiting.get(timeout=FLUSH_S)
    except Empty:
        return None


def _drain(source: Iterator[_Found], waiting: Queue[_Found]) -> None:
    try:
        for each in source:
            waiting.put(each)
    except Exception as error:  # noqa: BLE001  # the main thread raises it
        waiting.put(_Found(None, failure=error))
    else:
        waiting.put(_Found(None))


def insistently(act: Callable[[], None], patient: bool) -> None:
    """Tries again while the target is away."""
    pause = FIRST_PAUSE_S
    told = False
    while True:
        try:
            act()
        except OSError as error:
            if not patient:
                raise
            if not told:
                click.echo(f"the target does not take events, and is tried again: {error}", err=True)
                told = True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        else:
            if told:
                click.echo("the target takes events again", err=True)
            return
