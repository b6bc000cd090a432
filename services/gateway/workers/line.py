"""The worker's end of the line to its supervisor: a thread, so that it answers whatever the event loop does."""

import asyncio
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context

import structlog
from prometheus_client import REGISTRY

from mesh.lifecycle import EXIT_STUCK, Lifecycle
from services.gateway.workers.words import HEAR_FAULTS, LENGTH, STOP, TELL_METRICS, WORD_EVERY_S, Doors, Word

METRICS_S = 5.0
"""The supervisor may take so long to take a family of metrics."""

log = structlog.get_logger(__name__)

Tally = Callable[[], tuple[int, int, int, Doors]]
"""The number of connections that have come, of those that are open, the revision of the listeners, and these."""
Faults = Callable[[Mapping[str, str]], None]
"""Takes the reasons why listeners could not be opened, in the thread of the line."""


class Line:
    """See above. `start` within the loop."""

    def __init__(
        self, line: socket.socket, lifecycle: Lifecycle, tally: Tally, faults: Faults, stop_bound_s: float
    ) -> None:
        self._line = line
        self._lifecycle = lifecycle
        self._tally = tally
        self._faults = faults
        self._stop_bound_s = stop_bound_s
        self._said: Word | None = None
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        self._thread = threading.Thread(target=self._run, name="line", daemon=True)

    def start(self) -> None:
        self._line.settimeout(WORD_EVERY_S)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):  # as good as its end
            while self._carry_out():
                self._say()
        self._context.run(log.error, "the supervisor is gone: this worker drains, and ends")
        self._stop()
        time.sleep(self._stop_bound_s)
        os._exit(EXIT_STUCK)

    def _carry_out(self) -> bool:
        """The next order, if one comes in time. False at the end of the line."""
        try:
            order, descriptors, _, _ = socket.recv_fds(self._line, 1, 1)
        except TimeoutError:
            return True
        if order == STOP:
            self._stop()
        elif order == TELL_METRICS and descriptors:
            with socket.socket(fileno=descriptors[0]) as to:
                _tell_metrics(to)
        elif order == HEAR_FAULTS and descriptors:
            with socket.socket(fileno=descriptors[0]) as told, told.makefile("rb") as text:
                told.settimeout(METRICS_S)
                self._faults(json.load(text))
        return bool(order)

    def _say(self) -> None:
        word = Word(self._lifecycle.phase, self._lifecycle.reason, *self._tally())
        if word == self._said:
            return
        with suppress(TimeoutError, BlockingIOError):  # the supervisor has not read the last words: send this one later
            self._line.send(word.line(), socket.MSG_DONTWAIT)
            self._said = word

    def _stop(self) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._lifecycle.stop, context=self._context)


def _tell_metrics(to: socket.socket) -> None:
    """Family by family, so that the interpreter is given away in between."""
    to.settimeout(METRICS_S)
    with suppress(OSError):  # the supervisor has given up
        for family in REGISTRY.collect():
            told = pickle.dumps(family, pickle.HIGHEST_PROTOCOL)
            to.sendall(LENGTH.pack(len(told)) + told)
        to.sendall(LENGTH.pack(0))
