"""Writes one record, once. It waits, so it runs in a thread.

A form may be sent twice: by a second click, or because the page is loaded again. A record has no request id that a
broker knows. So the console remembers the ids of its forms for a while, with what became of their records.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.console.outcomes import GATEWAY, CallError, Ending
from services.console.records.kafka import STEP_S, Client, check_partition, refusal

MOST_REMEMBERED = 10_000
"""Forms."""
SILENT = ("_MSG_TIMED_OUT", "_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION")
"""Names of errors after which the record may be written all the same."""
ADVICE = "Look at the newest records before you send it again."
UNANSWERED = "the gateway did not answer in time. The record may have been written, or may still be written"


@dataclass(frozen=True, slots=True)
class New:
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None
    """None: by the key, as Java's clients have it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Sent:
    """The forms that were sent, with their ends; None while one is under way."""

    ends: OrderedDict[str, Place | CallError | None] = field(default_factory=OrderedDict)

    def begin(self, request_id: str) -> Place | None:
        """The place of the record, if the form was sent before; None: it is new. CallError: how it ended."""
        if request_id not in self.ends:
            while len(self.ends) >= MOST_REMEMBERED:
                self.ends.popitem(last=False)
            self.ends[request_id] = None
            return None
        end = self.ends[request_id]
        if isinstance(end, Place):
            return end
        text = "This form was sent already, and its record is on its way."
        raise end or CallError(Ending.UNKNOWN, "IN_FLIGHT", text, by=GATEWAY)

    def finish(self, request_id: str, end: Place | CallError) -> None:
        """A record that was surely not written may be sent again."""
        if isinstance(end, CallError) and end.ending is not Ending.UNKNOWN:
            self.ends.pop(request_id, None)
        else:
            self.ends[request_id] = end


def write(client: Client, record: New, seconds: float) -> Place:
    """CallError; its ending is UNKNOWN if the record may have been written."""
    deadline, about = time.monotonic() + seconds, f"topic {record.topic!r}"
    consumer = client.consumer(committed=True)
    try:
        known = client.partitions(consumer, record.topic, deadline)  # a producer would make a topic that is not there
    finally:
        consumer.close()
    check_partition(record.partition, known, about)
    ends: list[tuple[Any, Any]] = []
    producer = client.producer(seconds)
    chosen = {} if record.partition is None else {"partition": record.partition}
    client.ask(
        lambda: producer.produce(
            record.topic, record.value, record.key, headers=list(record.headers),
            on_delivery=lambda *end: ends.append(end), **chosen,
        ),
        about,
    )  # fmt: skip
    while not ends and time.monotonic() < deadline + STEP_S:
        producer.poll(STEP_S)
    if not ends:
        raise _unknown(about)
    error, message = ends[0]
    if error is not None:
        client.check(about)
        raise _unknown(about) if error.name() in SILENT else refusal(error, about)
    return Place(record.topic, message.partition(), message.offset())


def _unknown(about: str) -> CallError:
    return CallError(Ending.UNKNOWN, "_MSG_TIMED_OUT", f"{about}: {UNANSWERED}.", (ADVICE,), by=GATEWAY)
