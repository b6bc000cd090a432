"""How every service starts, becomes ready, drains and stops.

starting -> ready -> draining -> stopped. Readiness may be lost and regained meanwhile (`not_ready`, `ready`).
SIGTERM or SIGINT begins the drain; a second one, or a drain over its bound, ends the process at once. The same bound
holds for threads: Python waits for them behind the drain, and a thread may stand in a call of a client library.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from enum import Enum

import structlog

from mesh import open_files
from mesh.lean import collect_from_now_on
from mesh.waiting_tasks import waiting_tasks, waiting_threads

STOP_TIMEOUT = 20.0
"""Seconds that a drain may take before the process ends all the same."""
EXIT_STUCK = 70

log = structlog.get_logger(__name__)


class Phase(Enum):
    """The phase of a service's life."""

    STARTING = "starting"
    READY = "ready"
    NOT_READY = "not ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class Lifecycle:
    """The phase of this process. `/ready` and the gRPC health service answer from it; any thread may read it."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.reason = "starting"
        self.stopping = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.READY

    def ready(self) -> None:
        """The service does its work."""
        if self.phase in (Phase.STARTING, Phase.NOT_READY):
            log.info("ready")
            self.phase, self.reason = Phase.READY, ""

    def not_ready(self, reason: str) -> None:
        """The service can't do its work for now, and why; it is still alive and tries."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        if (self.phase, self.reason) != (Phase.NOT_READY, reason):
            log.warning("not ready", reason=reason)
            self.phase, self.reason = Phase.NOT_READY, reason

    def stop(self) -> None:
        """Begins the drain."""
        if not self.stopping.is_set():
            log.info("draining")
            self.phase, self.reason = Phase.DRAINING, "draining"
            self.stopping.set()


async def _supervised(main: Callable[[Lifecycle], Awaitable[None]], stop_timeout: float) -> None:
    lifecycle = Lifecycle()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if lifecycle.stopping.is_set():
            os._exit(EXIT_STUCK)
        lifecycle.stop()
        loop.call_later(stop_timeout, _give_up, stop_timeout)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await main(lifecycle)
    lifecycle.phase = Phase.STOPPED
    log.info("stopped")


def _give_up(stop_timeout: float) -> None:
    waiting = waiting_tasks(asyncio.get_running_loop())
    log.error("drain took too long, ending the process", seconds=stop_timeout, waiting=waiting)
    os._exit(EXIT_STUCK)


def _bound_the_exit(stop_timeout: float) -> None:
    """Ends the process if its threads have not ended within `stop_timeout` seconds."""
    timer = threading.Timer(stop_timeout, _end_with_threads, [stop_timeout])
    timer.daemon = True
    timer.start()


def _end_with_threads(stop_timeout: float) -> None:
    log.error("threads took too long, ending the process", seconds=stop_timeout, waiting=waiting_threads())
    os._exit(EXIT_STUCK)


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    from uvloop import new_event_loop  # not every image has it: a service that runs on asyncio's own loop does without

    return new_event_loop


def run(
    main: Callable[[Lifecycle], Awaitable[None]], *, uvloop: bool = True, stop_timeout: float = STOP_TIMEOUT
) -> None:
    """Runs a service in the foreground until a signal asks the service to stop; it may open as many files as allowed.

    `main` starts the service, calls `lifecycle.ready()`, awaits `lifecycle.stopping` and puts everything away; an
    exception from it ends the process with 1 and a traceback in the log. Threads have `stop_timeout` seconds to end.
    """
    collect_from_now_on()
    open_files.raise_limit()
    with asyncio.Runner(loop_factory=_uvloop_factory() if uvloop else None) as runner:
        try:
            runner.run(_supervised(main, stop_timeout))
        except Exception:
            log.exception("service failed")
            sys.exit(1)
        finally:
            _bound_the_exit(stop_timeout)
