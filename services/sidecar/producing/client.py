"""One librdkafka producer, and the polling for its acknowledgements.

librdkafka reports each record by a call into Python, which takes the interpreter's lock anew each time. While the event
loop is busy, each record would cost a change of threads. So the client changes between two modes:

1. Few records are on the way: a thread flushes, which sends lingering records and sees an acknowledgement at once.
2. Many records are on the way: the thread rests, and the event loop polls once a millisecond, without a fight over the
   lock. Records linger, so batches are large.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import KafkaError, Producer

from services.sidecar.producing.delivery import CLIENT_FAILURES, error_of
from services.sidecar.telemetry.client_errors import ClientErrors
from services.sidecar.telemetry.client_statistics import client_reports

POLL_SECONDS = 0.2
"""The wait of the thread when nothing happens, and so the longest time until it notices that it shall end."""
FIRST_FLUSH_SECONDS = 0.01
"""The first flush of the thread, which notices only afterwards that the event loop polls now. The time doubles while
nothing is acknowledged, up to `POLL_SECONDS`."""
BUSY_RECORDS = 20
"""If more records than this are on the way, the event loop polls."""
TICK_SECONDS = 0.001
QUIET_TICKS = 50
"""After so many ticks with few records on the way, the thread polls again. A change for each batch would cost more."""

log = structlog.get_logger(__name__)


class ProducerClient:
    """One producer. The constructor, `handed_over` and `end` are called on the event loop."""

    def __init__(self, properties: dict[str, Any], on_fatal: Callable[[], object]) -> None:
        self._on_fatal = on_fatal
        self._client_errors = ClientErrors("producer")
        self._fatal = False
        self._loop = asyncio.get_running_loop()
        self._loop_polls = False
        self._quiet_ticks = 0
        self._work = threading.Event()
        """Records are on the way, and the thread has to poll for them."""
        self._ending = threading.Event()
        self._purge_at = float("inf")
        self.producer = Producer({**properties, "error_cb": self._on_error, "stats_cb": client_reports("producer")})
        self._thread = threading.Thread(target=self._run, name="producer-poll", daemon=True)
        self._thread.start()

    def handed_over(self) -> None:
        """Records were given to `producer`."""
        if self._loop_polls:
            return
        if len(self.producer) <= BUSY_RECORDS or self._ending.is_set():
            self._work.set()
        else:
            self._loop_polls = True
            self._loop.call_later(TICK_SECONDS, self._tick)

    def end(self, timeout: float) -> None:
        """Waits for records on the way, `timeout` seconds at most; then the remaining records fail."""
        self._purge_at = time.monotonic() + timeout
        self._ending.set()
        self._work.set()

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _tick(self) -> None:
        if self._ending.is_set():
            return  # the thread polls for the rest
        self._serve(self.producer.poll, 0)
        self._quiet_ticks = 0 if len(self.producer) > BUSY_RECORDS else self._quiet_ticks + 1
        if self._quiet_ticks < QUIET_TICKS:
            self._loop.call_later(TICK_SECONDS, self._tick)
        else:
            self._loop_polls = False
            self._quiet_ticks = 0
            self._work.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._work.wait(POLL_SECONDS):
                self._work.clear()
                self._flush()
            elif not self._loop_polls:
                self._serve(self.producer.poll, 0)  # for errors
        self._flush()
        if len(self.producer):
            self.producer.purge()
        self.producer.close()  # reports the purged records

    def _flush(self) -> None:
        """Flushes until all records are acknowledged, or the event loop polls."""
        patience = FIRST_FLUSH_SECONDS
        while len(self.producer) and time.monotonic() < self._purge_at:
            if self._loop_polls and not self._ending.is_set():
                return
            self._serve(self.producer.flush, patience)
            patience = min(2 * patience, POLL_SECONDS)

    def _serve(self, step: Callable[[float], object], timeout: float) -> None:
        """Runs the callbacks of records that were acknowledged, or failed."""
        try:
            step(timeout)
        except CLIENT_FAILURES as failure:
            self._on_error(error_of(failure))

    def _on_error(self, error: KafkaError) -> None:
        self._client_errors(error)
        if error.fatal() and not self._fatal:
            self._fatal = True
            self._on_fatal()
