"""A client of confluent-kafka under load, in a process of its own: `python -m tests.bench.confluent_load WHAT ...`.

    produce BOOTSTRAP TOPIC RECORDS WARM_UP        as fast as it goes, with the producer's defaults
    consume BOOTSTRAP TOPIC RECORDS                from the beginning, with the consumer's defaults
    paced BOOTSTRAP TOPIC RATE SECONDS WARM_UP_S   so many records a second, and how long each takes to come back

Prints one line of JSON. A paced record counts from the time at which it was meant to leave: what falls behind is not
left out (coordinated omission).
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.bench.perf_tools import MIB, RECORD_BYTES, RUN_TIMEOUT_S

AT_ONCE = 1_000
"""Messages that one call takes from the consumer; it waits for all of them, so a paced run takes one at a time."""
WAIT_S = 0.1
SILENCE_S = 30.0
"""Without anything for so long, a run has failed."""
_MEANT = struct.Struct(">d")
"""When a record was meant to leave, by the monotonic clock: its first bytes."""


class LoadError(Exception):
    """The run has no figures; the message says why."""


@dataclass(frozen=True, slots=True)
class Rate:
    mib_per_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From the time at which a record was meant to leave to when it was read, milliseconds."""

    p50_ms: float
    p99_ms: float
    p999_ms: float


def produce(bootstrap: str, topic: str, records: int, warm_up: int) -> Rate:
    """In a process of its own, as the others."""
    return Rate(**_run("produce", bootstrap, topic, records, warm_up))


def consume(bootstrap: str, topic: str, records: int) -> Rate:
    return Rate(**_run("consume", bootstrap, topic, records))


def paced(bootstrap: str, topic: str, rate: float, seconds: float, warm_up_s: float) -> Latency:
    return Latency(**_run("paced", bootstrap, topic, rate, seconds, warm_up_s))


def _run(what: str, *arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.confluent_load", what, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise LoadError(f"{what} at {arguments[0]}: exit {done.returncode}\n{(done.stderr or done.stdout)[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout)
    return told


# --- in that process -------------------------------------------------------------------------------------------------


def _produce(bootstrap: str, topic: str, records: int, warm_up: int) -> Rate:
    delivered, began = 0, time.monotonic()

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered, began
        if error is not None:
            raise LoadError(f"a record was not delivered: {error}")
        delivered += 1
        if delivered == warm_up:
            began = time.monotonic()

    producer = Producer({"bootstrap.servers": bootstrap})
    send = partial(producer.produce, topic, bytes(RECORD_BYTES), on_delivery=on_delivery)
    for _ in range(records):
        _queued(send, producer)
        producer.poll(0)
    if left := producer.flush(SILENCE_S):
        raise LoadError(f"{left} records were not delivered")
    return _rate(records - warm_up, time.monotonic() - began)


def _queued(send: Callable[[], None], producer: Producer) -> None:
    deadline = time.monotonic() + SILENCE_S
    while True:
        try:
            return send()
        except BufferError:
            if time.monotonic() > deadline:
                raise LoadError("the producer's queue stays full") from None
            producer.poll(WAIT_S)


def _consume(bootstrap: str, topic: str, records: int) -> Rate:
    """The time until the first records come is that of connecting, and does not count; nor does that of leaving."""
    began, ended, first, read = 0.0, 0.0, 0, 0
    for come in _reading(bootstrap, topic, AT_ONCE):
        ended = time.monotonic()
        read += len(come)
        if not first:
            began, first = ended, read
        if read >= records:
            break
    return _rate(read - first, ended - began)


def _paced(bootstrap: str, topic: str, rate: float, seconds: float, warm_up_s: float) -> Latency:
    records, began = int(rate * seconds), time.monotonic() + WAIT_S
    sender = threading.Thread(target=_send_at, args=(bootstrap, topic, began, rate, records), daemon=True)
    took: list[float] = []
    read = 0
    sender.start()
    for come in _reading(bootstrap, topic, 1):
        now = time.monotonic()
        for message in come:
            (meant,) = _MEANT.unpack_from(message.value() or b"")
            if meant - began >= warm_up_s:
                took.append(1000 * (now - meant))
        read += len(come)
        if read >= records:
            break
    sender.join(SILENCE_S)
    took.sort()
    return Latency(*(took[int(len(took) * part)] for part in (0.5, 0.99, 0.999)))


def _send_at(bootstrap: str, topic: str, began: float, rate: float, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    rest = bytes(RECORD_BYTES - _MEANT.size)
    for number in range(records):
        meant = began + number / rate
        while (early := meant - time.monotonic()) > 0:
            producer.poll(early)
        _queued(partial(producer.produce, topic, _MEANT.pack(meant) + rest), producer)
    producer.flush(SILENCE_S)


def _reading(bootstrap: str, topic: str, at_once: int) -> Iterator[list[Message]]:
    """What comes, some at a time; LoadError when nothing has come for too long."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    heard = time.monotonic()
    try:
        while time.monotonic() - heard < SILENCE_S:
            come = [each for each in consumer.consume(at_once, WAIT_S) if each.error() is None]
            if come:
                heard = time.monotonic()
                yield come
        raise LoadError(f"nothing has come from {topic} for {SILENCE_S:g} s")
    finally:
        consumer.close()


def _rate(records: int, seconds: float) -> Rate:
    return Rate(records * RECORD_BYTES / MIB / seconds)


def main(what: str, bootstrap: str, topic: str, *numbers: str) -> None:
    if what == "produce":
        told: Rate | Latency = _produce(bootstrap, topic, *map(int, numbers))
    elif what == "consume":
        told = _consume(bootstrap, topic, *map(int, numbers))
    else:
        told = _paced(bootstrap, topic, *map(float, numbers))
    print(json.dumps(asdict(told)))


if __name__ == "__main__":
    main(*sys.argv[1:])
