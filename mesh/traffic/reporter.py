"""Tells the home cluster what was counted: one report for each interval, and a last one at the end.

Theory of operation
1. `TrafficReporter` lives where it is counted, on the event loop: it ends the intervals. All else is its writer's, on a
   thread of its own, so whatever the home cluster does, no request waits for it.
2. The thread turns an interval into reports at once, and gives the interpreter away again and again meanwhile: a
   thousand combinations take some 20 ms, which must not hold up the loop.
3. Reports wait to be written in a bounded place. While the home cluster is away the oldest make way, and are counted as
   lost; what is there comes when it is back. A report whose acknowledgement was lost comes twice: its id tells. One
   that the home cluster never takes, for its size, is lost at once: the others would wait behind it.
4. At the end there is one attempt more, within the time that is left.
"""

import asyncio
import math
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from queue import Empty, Full, Queue

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mesh.home_cluster import HomeAwayError, HomeCluster, OwnTopic
from mesh.traffic.counting import Counts, Interval
from mesh.traffic.metrics import TrafficMetrics
from mesh.traffic.reports import reports

MOST_WAITING_BYTES = 32 * 1024 * 1024
"""Bound of reports that the home cluster has not stored: an hour and more of a thousand combinations."""
MOST_INTERVALS = 3
"""That the thread has not come to: it works on one for well under a second."""
SLICE_REPORTS = 16
"""Written at once, so that what is on the way is bounded too."""
WRITE_S = 5.0
"""Until a report that was not acknowledged counts as not written."""
RETRY_S = 5.0
LOOK_S = 0.2
"""How soon it is seen that the service ends."""
KEPT_MS = 7 * 24 * 3600 * 1000
PARTITIONS = 4
"""Partitions of a new topic: as many as there are readers side by side."""

log = structlog.get_logger(__name__)


class ReportWriter:
    """Writes the reports of one service."""

    def __init__(self, home: HomeCluster, topic: str, reporter: str, kind: str, metrics: TrafficMetrics) -> None:
        """`kind`: of service, "gateway" or "sidecar"; `reporter`: which one it is."""
        self._home = home
        self._topic = OwnTopic(topic, PARTITIONS, {"retention.ms": str(KEPT_MS)})
        self._reporter = reporter
        self._kind = kind
        self._metrics = metrics
        self._intervals: Queue[Interval | None] = Queue(MOST_INTERVALS)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._producer: Producer | None = None
        self._end_by = math.inf
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        metrics.waiting_bytes.set_function(lambda: self._waiting_bytes)

    def start(self) -> None:
        self._thread.start()

    def hand_over(self, interval: Interval) -> None:
        """Takes an interval, from any thread, and returns at once."""
        if not interval.tallies:
            return
        self._metrics.overflowed.inc(interval.overflowed)
        try:
            self._intervals.put_nowait(interval)
        except Full:
            self._metrics.lost.inc()

    def stop(self, timeout: float) -> None:
        """Writes what is there, within `timeout` seconds; what is left then is lost, and counted."""
        self._end_by = time.monotonic() + timeout
        with suppress(Full):  # then it has no need to be woken up
            self._intervals.put_nowait(None)
        self._thread.join(timeout + 2 * LOOK_S)

    def _run(self) -> None:
        while self._end_by == math.inf:
            self._take_one(RETRY_S)
            self._write_all()
        while not self._intervals.empty():
            self._take_one(0)
        self._write_all()
        if self._waiting:
            log.warning("reports of traffic are lost at the end", reports=len(self._waiting), reason=self._problem)
        self._metrics.lost.inc(len(self._waiting))
        if self._producer is not None:
            self._producer.close()

    def _take_one(self, timeout: float) -> None:
        """The next interval, if there is one in time, becomes reports."""
        with suppress(Empty):
            interval = self._intervals.get(timeout=timeout) if timeout else self._intervals.get_nowait()
            if interval is not None:
                self._metrics.note(interval)
                for report in reports(interval, self._reporter, self._kind, partial(time.sleep, 0)):
                    self._keep(report.SerializeToString())

    def _keep(self, report: bytes) -> None:
        self._waiting.append(report)
        self._waiting_bytes += len(report)
        while self._waiting_bytes > MOST_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.popleft())
            self._metrics.lost.inc()

    def _write_all(self) -> None:
        """As much as the home cluster takes."""
        try:
            while self._waiting:
                self._write_some()
        except HomeAwayError as away:
            if str(away) != self._problem:
                log.warning("traffic can't be reported, and is kept for a while", reason=str(away))
            self._problem = str(away)
            return
        if self._problem:
            log.info("traffic is reported again", topic=self._topic.name)
        self._problem = ""

    def _write_some(self) -> None:
        """The oldest reports. HomeAwayError when one was not acknowledged; it comes again."""
        if self._producer is None:
            self._producer = self._home.producer_for(self._topic, f"{self._reporter}-traffic", _PROPERTIES)
        some = [self._waiting.popleft() for _ in range(min(SLICE_REPORTS, len(self._waiting)))]
        taken: set[int] = set()
        too_large: set[int] = set()
        why = f"reports are not acknowledged within {WRITE_S:g} s"

        def delivered(index: int, error: KafkaError | None, _: Message) -> None:
            nonlocal why
            if error is None:
                taken.add(index)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                too_large.add(index)
            elif error.code() != KafkaError._PURGE_QUEUE:
                why = error.str()

        try:
            for index, report in enumerate(some):
                noting = partial(delivered, index)
                self._producer.produce(self._topic.name, report, self._reporter.encode(), on_delivery=noting)
            give_up_at = time.monotonic() + WRITE_S
            while len(self._producer) and time.monotonic() < min(give_up_at, self._end_by):
                self._producer.flush(LOOK_S)
        except (KafkaException, BufferError) as failure:
            why = str(failure)
        self._producer.purge()
        self._producer.flush(0)  # until the producer has reported what was purged
        self._metrics.written.inc(len(taken))
        if too_large:
            log.warning("reports of traffic are larger than the topic takes, and lost", topic=self._topic.name,
                        reports=len(too_large), bytes=max(len(some[index]) for index in too_large))  # fmt: skip
            self._metrics.lost.inc(len(too_large))
        done = taken | too_large
        self._waiting_bytes -= sum(len(some[index]) for index in done)
        left = [report for index, report in enumerate(some) if index not in done]
        if left:
            self._waiting.extendleft(reversed(left))
            raise HomeAwayError(f"{self._home}: {why}")


class TrafficReporter:
    """Ends the intervals of `counts`, and hands them to its writer. `start` and `stop` on the loop that counts."""

    def __init__(self, counts: Counts, writer: ReportWriter, interval_s: float) -> None:
        self._counts = counts
        self._writer = writer
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._writer.start()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="traffic")

    async def stop(self, timeout: float) -> None:
        """Tells the rest."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.hand_over(self._counts.take(datetime.now(UTC)))
        await asyncio.to_thread(self._writer.stop, timeout)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self._writer.hand_over(self._counts.take(datetime.now(UTC)))


_PROPERTIES = {
    "acks": "all",
    "linger.ms": 0,
    "compression.type": "lz4",
    "message.timeout.ms": int(WRITE_S * 1000),
    "queue.buffering.max.messages": 10 * SLICE_REPORTS,
    "queue.buffering.max.kbytes": 64 * 1024,
}
