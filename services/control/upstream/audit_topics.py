"""Follows the audit topics of one cluster, for one caller: a thread with a consumer that belongs to no group.

1. The follower begins at the requested start, and then keeps its own offsets: after an error it continues from them.
2. The follower tries a cluster that is away, or has no such topic yet, again every `LOOK_SECONDS`. It reports a problem
   when the problem changes. It also finds new partitions then, and reads them from their beginning.
3. The follower passes events to the caller one batch after the other. A slow caller holds up only its own consumer,
   which fetches at most `FETCH_KILOBYTES` ahead.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from mesh.routing import UpstreamCluster
from mesh.rpc import audit
from services.control.domain.audit.events import is_asked_for, record_audit
from services.control.domain.errors import Refusal
from services.control.upstream.connections import REQUEST_TIMEOUT, connection_settings, knock, reason_of

LOOK_SECONDS = 5.0
AT_ONCE = 500
"""Messages of one batch."""
POLL_SECONDS = 0.2
"""Seconds within which the follower notices that the caller is gone."""
FETCH_KILOBYTES = 4 * 1024

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Found:
    """News of one cluster."""

    events: Sequence[audit.RecordAudit] = ()
    source: audit.AuditSource | None = None
    """The state of the cluster as a source, when this state has changed."""
    is_last: bool = False
    """The follower has ended."""


class AuditFollower:
    """A context manager that follows from the beginning of the context to its end."""

    def __init__(
        self,
        cluster: UpstreamCluster,
        topics: Sequence[str],
        request: audit.TailAuditRequest,
        take: Callable[[Found], Any],
    ) -> None:
        """`take` is a coroutine function of the present loop; the next batch waits until it is done."""
        self._cluster = cluster
        self._topics = topics
        self._request = request
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._ending = threading.Event()
        self._next: dict[Place, int] = {}
        """The next offset of each partition, after the records that were read."""
        self._ends: dict[Place, int] = {}
        """The end offset of each partition when the follower began."""
        self._began_at = int(time.time() * 1000)
        self._is_placed = False
        """Whether the start offsets are known, in the partitions that existed at the beginning."""
        self._told: tuple[tuple[str, ...], str] | None = None
        self._thread = threading.Thread(target=self._run, name=f"audit of {cluster.name}", daemon=True)

    def __enter__(self) -> AuditFollower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The thread ends by itself, soon."""
        self._ending.set()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._follow()
                except (KafkaException, TimeoutError, OSError) as error:
                    self._tell((), f"cluster {self._cluster.name!r} does not answer: {reason_of(error)}")
                except Refusal as refusal:  # a secret that is not there
                    self._tell((), refusal.message)
                if self._request.stop_at_end:
                    break
                self._ending.wait(LOOK_SECONDS)
        finally:
            self._give(Found(is_last=True))

    def _follow(self) -> None:
        """Follows until the caller is gone, all requested records are read, or the cluster does not answer."""
        knock(self._cluster.bootstrap_servers)
        consumer = Consumer(self._settings())
        try:
            self._look(consumer)
            looked_at = time.monotonic()
            while not self._ending.is_set() and not self._is_done():
                messages = consumer.consume(AT_ONCE, POLL_SECONDS) if self._next else []
                events = self._events(messages)
                if events:
                    self._give(Found(events))
                if time.monotonic() - looked_at > LOOK_SECONDS:
                    self._look(consumer)
                    looked_at = time.monotonic()
                if not self._next and not self._is_done():
                    self._ending.wait(LOOK_SECONDS)
        finally:
            consumer.close()

    def _look(self, consumer: Consumer) -> None:
        """Reads the list of topics and partitions, and assigns new partitions."""
        known = consumer.list_topics(timeout=REQUEST_TIMEOUT).topics
        there = {topic: len(known[topic].partitions) for topic in self._topics if topic in known}
        places = [(topic, number) for topic, count in there.items() for number in range(count)]
        if {(one.topic, one.partition) for one in consumer.assignment()} != set(places):
            for place in places:
                if place not in self._next:
                    self._next[place] = 0 if self._is_placed else self._start(consumer, place)
            consumer.assign([TopicPartition(topic, number, self._next[topic, number]) for topic, number in places])
        self._is_placed = True
        self._tell(tuple(there), "")

    def _start(self, consumer: Consumer, place: Place) -> int:
        _, end = consumer.get_watermark_offsets(TopicPartition(*place), REQUEST_TIMEOUT)
        self._ends[place] = end
        is_asked = self._request.HasField("start_time")
        if not is_asked and self._told is None:
            return end
        since = self._request.start_time.ToMilliseconds() if is_asked else self._began_at  # it was away until now
        asked = TopicPartition(*place, since)
        (found,) = consumer.offsets_for_times([asked], REQUEST_TIMEOUT)
        if found.error is not None:
            raise KafkaException(found.error)
        return end if found.offset in (OFFSET_END, -1) else found.offset

    def _events(self, messages: Sequence[Any]) -> list[audit.RecordAudit]:
        events = []
        for message in messages:
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._next[message.topic(), message.partition()] = message.offset()
                    continue
                raise KafkaException(error)
            self._next[message.topic(), message.partition()] = message.offset() + 1
            event = record_audit(message.value(), self._cluster.name)
            if event is not None and is_asked_for(event, self._request):
                events.append(event)
        return sorted(events, key=lambda event: event.time.ToNanoseconds())  # partition by partition until here

    def _is_done(self) -> bool:
        return self._request.stop_at_end and all(self._next[place] >= end for place, end in self._ends.items())

    def _tell(self, topics: tuple[str, ...], problem: str) -> None:
        """Reports the state of the source, if it has changed."""
        if self._told != (topics, problem):
            self._told = topics, problem
            source = audit.AuditSource(cluster_name=self._cluster.name, topics=topics, problem=problem)
            self._give(Found(source=source))

    def _give(self, found: Found) -> None:
        """Gives `found` to the caller, and waits until the caller has taken it, or is gone."""
        taking = self._take(found)
        try:
            given = asyncio.run_coroutine_threadsafe(taking, self._loop)
        except RuntimeError:  # the loop has ended
            taking.close()
            self._ending.set()
            return
        while not self._ending.is_set():
            try:
                given.result(POLL_SECONDS)
                break
            except TimeoutError:
                continue
            except CancelledError:
                break
        given.cancel()

    def _settings(self) -> dict[str, Any]:
        return {
            **connection_settings(self._cluster),
            "client.id": "kafka-mesh-control-audit",
            "group.id": "kafka-mesh-control-audit",  # never joined, and nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # records that were deleted meanwhile are skipped
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": FETCH_KILOBYTES,
            "fetch.wait.max.ms": 200,
            "fetch.queue.backoff.ms": 10,  # by itself it fetches nothing for a second when that is full
        }
