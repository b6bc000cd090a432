"""One thread that runs calls one after the other, and an idle task now and then.

A Kafka consumer wants to be used by one thread and blocks while it works. Here each instance gets a thread of its own;
the event loop hands calls over and awaits their results. The queue is bounded: a call that finds it full is refused.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog

from services.sidecar.telemetry import metrics

T = TypeVar("T")
MAX_WAITING_CALLS = 16
"""The most calls that wait for one instance. A backend with more open calls only delays itself."""

log = structlog.get_logger(__name__)


class TooManyCallsError(Exception):
    """The queue is full."""


class SerialThread:
    """Runs calls in their order. `idle` is called every `idle_seconds`, whatever the number of calls."""

    def __init__(self, name: str, idle: Callable[[], None], idle_seconds: float) -> None:
        # SimpleQueue has no bound of its own: `call` keeps it
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = idle
        self._idle_seconds = idle_seconds
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], T], timeout: float) -> T:
        """The result of `function`, run on the thread. TimeoutError: it may still run, its result is dropped."""
        if self._ended or self._calls.qsize() >= MAX_WAITING_CALLS:
            raise TooManyCallsError
        future: Future[T] = Future()
        self._calls.put((future, function))
        metrics.instance_queue.inc()
        future.add_done_callback(lambda _: metrics.instance_queue.dec())
        async with asyncio.timeout(timeout):
            return await asyncio.wrap_future(future)

    def post(self, function: Callable[[], object]) -> None:
        """Runs `function` after the calls that are already there; nobody waits for it. Never refused."""

        def run() -> None:
            try:
                function()
            except Exception:
                log.exception("work of a consumer instance failed")

        if not self._ended:
            self._calls.put((Future(), run))

    def end(self) -> None:
        """The thread ends after the calls that are already there; later ones are refused."""
        if not self._ended:
            self._ended = True
            self._calls.put(None)

    def _run(self) -> None:
        idle_at = time.monotonic() + self._idle_seconds
        while True:
            try:
                call = self._calls.get(timeout=max(idle_at - time.monotonic(), 0))
            except queue.Empty:
                self._run_idle()
                idle_at = time.monotonic() + self._idle_seconds
                continue
            if call is None:
                return
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  # carried to the caller that awaits the call
                future.set_exception(error)

    def _run_idle(self) -> None:
        try:
            self._idle()
        except Exception:
            log.exception("idle work of a consumer instance failed")
