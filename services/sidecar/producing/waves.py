"""Gives a topic's batches to Kafka's client in waves: the next wave begins when the wave before has arrived.

Theory of operation
1. An idempotent client sends no request to a partition while more than `SENT_AT_ONCE` records are on their way there
   (librdkafka 2.16, `rd_kafka_toppar_producer_serve`). If records then wait in the client for longer than `linger.ms`,
   its thread checks again and again without a rest. It uses a whole processor for nothing, until Kafka acknowledges.
2. So records wait here instead. A batch is handed over at once if at most `SENT_AT_ONCE` records of its topic are on
   the way. The batch is also handed over at once if the wave began less than half of `linger.ms` ago, because then no
   request has left. Any other batch waits. All waiting batches (`WAVE_RECORDS`, or one larger batch) are handed over
   together: one request for a partition.
3. The records of a topic's partitions may arrive at different speeds; those of one partition may never arrive. If a
   wave takes longer than `WAVE_SECONDS`, the next wave begins beside it.
4. Batches of one topic are handed over in the order in which they came.

`Admission` bounds and counts the records that wait here, with all other records on the way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from services.sidecar.producing.delivery import Batch
from services.sidecar.records import Outgoing

SENT_AT_ONCE = 5
"""Records that an idempotent client has on the way to a partition before further ones wait (librdkafka's bound)."""
WAVE_RECORDS = 2_000
"""Records of one wave, at most; the client gets them within about 5 ms."""
WAVE_SECONDS = 0.25
"""The longest wait of the next wave: longer than a busy broker takes, shorter than a broker's failover."""
SLICE_RECORDS = 500
"""Records handed over before the event loop gets its turn: about 2 ms."""


@dataclass(frozen=True, slots=True)
class Given:
    """Records of one request, for one topic, and the batch that gets their outcomes."""

    topic: str
    records: list[Outgoing]
    batch: Batch


HandOver = Callable[[Given, int, int], None]
"""Gives records from the first number up to the second to the client."""


@dataclass(slots=True)
class _Topic:
    waiting: deque[Given] = field(default_factory=deque)
    wave: deque[Given] = field(default_factory=deque)
    """The batches that are being handed over."""
    begun: int = 0
    """The number of records of the first batch in `wave` that were handed over."""
    number: int = 0
    """The number of the wave."""
    on_the_way: int = 0
    """Records of the wave that have not arrived."""
    open_until: float = 0.0
    """The time, on the event loop's clock, until which new batches join the wave; soon after, the client sends."""
    overdue: asyncio.TimerHandle | None = None


class Waves:
    """The waves of one producer. All methods belong to the event loop."""

    def __init__(self, hand_over: HandOver, linger_seconds: float) -> None:
        """`linger_seconds`: the client's wait for more records before it sends."""
        self._hand_over = hand_over
        self._linger = linger_seconds
        self._loop = asyncio.get_running_loop()
        self._topics: dict[str, _Topic] = {}

    def add(self, given: Given) -> None:
        """Hands the records over, now or in their turn."""
        topic = self._topics.setdefault(given.topic, _Topic())
        topic.waiting.append(given)
        if topic.on_the_way <= SENT_AT_ONCE or self._loop.time() < topic.open_until:
            self._fill(topic)
        self._watch(topic)

    def end(self) -> None:
        """Hands over all batches that wait."""
        for topic in list(self._topics.values()):
            topic.wave += topic.waiting
            topic.waiting.clear()
            while topic.wave:
                self._hand_over_slice(topic)

    def _fill(self, topic: _Topic) -> None:
        """Fills the wave with waiting batches. Does nothing during the hand-over, whose end handles waiting batches."""
        if topic.wave:
            return
        if topic.on_the_way <= SENT_AT_ONCE:
            topic.open_until = self._loop.time() + self._linger / 2
        while topic.waiting and _fits(topic):
            given = topic.waiting.popleft()
            topic.wave.append(given)
            topic.on_the_way += len(given.records)
            given.batch.done.add_done_callback(partial(self._arrived, given, topic, topic.number))
        self._go_on(topic)

    def _watch(self, topic: _Topic) -> None:
        """Starts the timer for an overdue wave if batches wait, and stops the timer if none waits."""
        if topic.overdue is None and topic.waiting:
            topic.overdue = self._loop.call_later(WAVE_SECONDS, self._is_overdue, topic)
        elif topic.overdue is not None and not topic.waiting:
            topic.overdue.cancel()
            topic.overdue = None

    def _go_on(self, topic: _Topic) -> None:
        if topic.wave:
            self._hand_over_slice(topic)
        if topic.wave:
            self._loop.call_soon(self._go_on, topic)  # other requests are served between two slices
        elif topic.waiting and topic.on_the_way <= SENT_AT_ONCE:
            self._fill(topic)
            self._watch(topic)

    def _hand_over_slice(self, topic: _Topic) -> None:
        left = SLICE_RECORDS
        while topic.wave and left:
            given, start = topic.wave[0], topic.begun
            stop = min(start + left, len(given.records))
            if stop == len(given.records):
                topic.wave.popleft()
                topic.begun = 0
            else:
                topic.begun = stop
            left -= stop - start
            self._hand_over(given, start, stop)

    def _arrived(self, given: Given, topic: _Topic, number: int, done: "asyncio.Future[object]") -> None:
        if number != topic.number:  # the wave was overdue, and a newer wave has begun
            return
        topic.on_the_way -= len(given.records)
        if topic.on_the_way > SENT_AT_ONCE:
            return
        if topic.waiting:
            self._fill(topic)
            self._watch(topic)
        elif not topic.on_the_way:
            self._topics.pop(given.topic, None)

    def _is_overdue(self, topic: _Topic) -> None:
        topic.overdue = None
        topic.number += 1
        topic.on_the_way = 0
        self._fill(topic)
        self._watch(topic)


def _fits(topic: _Topic) -> bool:
    return topic.on_the_way <= SENT_AT_ONCE or topic.on_the_way + len(topic.waiting[0].records) <= WAVE_RECORDS
