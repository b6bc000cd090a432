"""kafka-python 1.4 behind the orders of the tests (../steered.py), in an environment of its own: BOOTSTRAP API-VERSION.

Nothing of the project is imported here: two versions of one library do not fit into one environment.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
import time

import six  # type: ignore[import-untyped] # of that environment

# The copy of six within the library is too old for Python 3.12: it has no find_spec.
sys.modules["kafka.vendor.six"] = six
sys.modules["kafka.vendor.six.moves"] = six.moves

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition  # noqa: E402

COMMIT_EVERY_SECONDS = 0.5
POLL_MS = 200
SEND_TIMEOUT_SECONDS = 50


class Order:
    """One line: a name, and settings as name=value; with the records to send below it."""

    def __init__(self, line: str) -> None:
        self.name, *words = line.split(" ")
        self.settings = dict(word.split("=", 1) for word in words)
        self.records: list[str] = []
        self.stop = threading.Event()

    def number(self, name: str, otherwise: int | None = None) -> int | None:
        return int(self.settings[name]) if name in self.settings else otherwise


class Client:
    def __init__(self, bootstrap: str, api_version: str) -> None:
        version = tuple(int(part) for part in api_version.split("."))
        self._common = {"bootstrap_servers": bootstrap, "api_version": version}
        self._with_timestamps = version >= (0, 10)

    def carry_out(self, order: Order) -> bool:
        if order.name == "produce":
            self._produce(order)
        elif order.name == "consume":
            self._consume(order)
        else:
            raise ValueError(f"no such order: {order.name}")
        return True

    def _produce(self, order: Order) -> None:
        acks, compression = order.settings["acks"], order.settings["compression"]
        producer = KafkaProducer(
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            linger_ms=5,
            **self._common,
        )
        for number, line in enumerate(order.records):
            topic, key, value, timestamp, _ = line.split("\t")
            at = None if timestamp == "-" or not self._with_timestamps else int(timestamp)
            self._send(producer, str(number), topic, _bytes(key), _bytes(value), at)
        if "ids" in order.settings:
            self._send_made_up(producer, order)
        producer.flush(SEND_TIMEOUT_SECONDS)
        producer.close(SEND_TIMEOUT_SECONDS)

    def _send_made_up(self, producer: KafkaProducer, order: Order) -> None:
        topics, rate, keys = order.settings["topics"].split(","), order.number("rate"), order.number("keys")
        assert rate is not None and keys is not None
        start = time.monotonic()
        sent = 0
        while not order.stop.wait(max(0.0, start + sent / rate - time.monotonic())):
            record = f"{order.settings['ids']}-{sent}"
            self._send(producer, record, topics[sent % len(topics)], b"key-%d" % (sent % keys), record.encode(), None)
            sent += 1

    def _send(
        self, producer: KafkaProducer, record: str, topic: str, key: bytes | None, value: bytes | None, at: int | None
    ) -> None:
        future = producer.send(topic, value, key, timestamp_ms=at)
        future.add_callback(
            lambda sent: tell(acked=record, topic=sent.topic, partition=sent.partition, offset=sent.offset)
        )
        future.add_errback(lambda error: tell(error=repr(error), at="produce"))

    def _consume(self, order: Order) -> None:
        consumer = KafkaConsumer(
            group_id=order.settings["group"], auto_offset_reset="earliest", enable_auto_commit=False, **self._common
        )
        if "pattern" in order.settings:
            consumer.subscribe(pattern=order.settings["pattern"])
        else:
            consumer.subscribe(order.settings["topics"].split(","))
        left = order.number("count")
        uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        commit_due = time.monotonic() + COMMIT_EVERY_SECONDS
        while not order.stop.is_set() and left != 0:
            for place, records in consumer.poll(POLL_MS, max_records=left).items():
                for record in records:
                    _tell_received(record)
                    uncommitted[place] = OffsetAndMetadata(record.offset + 1, "")
                if left is not None:
                    left -= len(records)
            if uncommitted and (left == 0 or time.monotonic() >= commit_due):
                consumer.commit(uncommitted)
                uncommitted = {}
                commit_due = time.monotonic() + COMMIT_EVERY_SECONDS
        consumer.close(autocommit=False)


def _tell_received(record) -> None:  # type: ignore[no-untyped-def] # the library has no types
    tell(
        received=record.value.decode(),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=-1 if record.timestamp is None else record.timestamp,
        key=None if record.key is None else record.key.decode(),
        headers={},
    )


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


_telling = threading.Lock()


def tell(**line: object) -> None:
    with _telling:
        print(json.dumps(line), flush=True)


def main() -> None:
    """What happens is one queue of events, lines and the ends of orders; an order runs in a thread."""
    client = Client(*sys.argv[1:])
    events: queue.Queue[tuple[str, object]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            events.put(("line", line.rstrip("\n")))
        events.put(("end of stdin", None))

    def carry_out(order: Order) -> None:
        try:
            events.put(("ended", {"done": client.carry_out(order)}))
        except Exception as error:  # noqa: BLE001 # the test decides what it means
            events.put(("ended", {"failed": repr(error)}))

    threading.Thread(target=read, daemon=True).start()
    more = True
    while more:
        kind, line = events.get()
        if kind != "line":
            return
        if line == "stop":
            continue  # what was to be stopped has ended by itself
        order = Order(str(line))
        for _ in range(order.number("records", 0) or 0):
            order.records.append(str(events.get()[1]))
        threading.Thread(target=carry_out, args=(order,), daemon=True).start()
        while True:
            kind, answer = events.get()
            if kind == "ended":
                assert isinstance(answer, dict)
                tell(**answer)  # from here on a line is the next order: nobody sends one before
                break
            order.stop.set()
            more = more and kind == "line"


if __name__ == "__main__":
    main()
