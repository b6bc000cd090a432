"""`kafka-mesh produce` and `kafka-mesh consume`: lines in, lines out, as plain Kafka clients of the gateway."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from local.gateway_address import EXIT_FAILED, ClientError, bootstrap_option, no_answer, unrouted
from meshctl.endpoints import Endpoint

DEFAULT_DELIVERY_SECONDS = 30.0
UNKNOWN_TOPIC_SECONDS = 5.0  # how long a topic may be unknown: one that is being created shows up within
CONNECT_SECONDS = 10.0
POLL_SECONDS = 0.2  # how soon Ctrl-C is seen
LINGER_MS = 5
_NO_ANSWER = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class RecordFormat(StrEnum):
    """How `consume` writes a record."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


def quiet(endpoint: Endpoint, client_id: str) -> dict[str, Any]:
    """Properties that all our clients share; librdkafka's own log lines are off, its errors come to us."""
    return {"bootstrap.servers": endpoint.address, "client.id": client_id, "log_level": 0}


@dataclass(slots=True)
class Deliveries:
    """The outcome of the records that were given to librdkafka."""

    offsets: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    failed: int = 0
    first_error: KafkaError | None = None
    last_client_error: KafkaError | None = None

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.offsets[message.partition() or 0].append(message.offset() or 0)
            return
        self.failed += 1
        self.first_error = self.first_error or error

    def note_client_error(self, error: KafkaError) -> None:
        self.last_client_error = error

    @property
    def delivered(self) -> int:
        return sum(len(offsets) for offsets in self.offsets.values())

    def places(self) -> str:
        """ "partition 0 offsets 4-6, partition 2 offset 9"."""
        return ", ".join(
            f"partition {partition} {_span(sorted(offsets))}" for partition, offsets in sorted(self.offsets.items())
        )


def _span(offsets: list[int]) -> str:
    return f"offset {offsets[0]}" if len(offsets) == 1 else f"offsets {offsets[0]}-{offsets[-1]}"


@click.command()
@click.argument("topic")
@bootstrap_option
@click.option(
    "-m", "--message", "messages", multiple=True, help="A record's value, instead of lines of stdin; repeatable."
)
@click.option("--key-separator", metavar="TEXT", help="What stands before this in a line is the record's key.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record; repeatable.")
@click.option(
    "--partition", type=click.IntRange(min=0), help="The partition; librdkafka's partitioner chooses otherwise."
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=DEFAULT_DELIVERY_SECONDS, show_default=True, metavar="SECONDS",
    help="How long a record may take to be delivered.",
)  # fmt: skip
def produce(
    topic: str,
    bootstrap: Endpoint,
    messages: tuple[str, ...],
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timeout: float,
) -> None:
    """Write each line of stdin, or each --message, to TOPIC as one record.

    Exit code 0 when all records were delivered, 1 when some were not, 3 when nothing answers.
    """
    deliveries = Deliveries()
    producer = Producer(
        quiet(bootstrap, "kafka-mesh-produce")
        | {
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "message.timeout.ms": int(timeout * 1000),
            # below the delivery time-out: "unknown topic" says more than "timed out"
            "topic.metadata.propagation.max.ms": int(min(timeout / 2, UNKNOWN_TOPIC_SECONDS) * 1000),
            "error_cb": deliveries.note_client_error,
        }
    )
    record_headers = [_header(each) for each in headers]
    lines: Iterable[bytes] = (each.encode() for each in messages) if messages else _stdin_lines()
    interrupted = False
    refused: ClientError | None = None
    try:
        for line in lines:
            key, value = _key_and_value(line, key_separator)
            fields: dict[str, Any] = {"key": key, "headers": record_headers, "on_delivery": deliveries.note}
            if partition is not None:
                fields["partition"] = partition
            _send(producer, topic, value, fields)
    except KeyboardInterrupt:
        interrupted = True
    except ClientError as error:  # this line ends it; those before it are on their way
        refused = error
    undelivered = producer.flush(timeout + POLL_SECONDS)
    deliveries.failed += undelivered
    if deliveries.delivered or not (deliveries.failed or refused):
        places = f": {deliveries.places()}" if deliveries.delivered else ""
        click.echo(f"{deliveries.delivered} {'record' if deliveries.delivered == 1 else 'records'} to {topic}{places}")
    if deliveries.failed:
        raise _not_delivered(topic, bootstrap, deliveries, partition)
    if refused:
        raise refused
    if interrupted:
        raise click.Abort


def _send(producer: Producer, topic: str, value: bytes, fields: dict[str, Any]) -> None:
    """Hand one record to librdkafka; while its queue is full, wait for room."""
    while True:
        try:
            producer.produce(topic, value, **fields)
        except BufferError:
            producer.poll(POLL_SECONDS)
            continue
        except KafkaException as error:
            raise ClientError(
                f"a record of {len(value)} bytes is refused: {error.args[0].str()}", EXIT_FAILED
            ) from error
        producer.poll(0)
        return


def _stdin_lines() -> Iterator[bytes]:
    for line in click.get_binary_stream("stdin"):
        yield line.rstrip(b"\r\n")


def _key_and_value(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise ClientError(f"line {line.decode(errors='replace')!r} has no key separator {separator!r}", EXIT_FAILED)
    return key, value


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"header {text!r}: expected NAME=VALUE")
    return name, value.encode()


def _not_delivered(topic: str, endpoint: Endpoint, deliveries: Deliveries, partition: int | None) -> ClientError:
    error, client_error = deliveries.first_error, deliveries.last_client_error
    if not deliveries.delivered and client_error is not None and client_error.code() in _NO_ANSWER:
        return no_answer(endpoint, client_error.str())
    cause = error.str() if error is not None else "no answer in time"
    if error is not None and error.code() in _NO_TOPIC:
        cause = unrouted(topic)
    elif error is not None and error.code() == KafkaError._UNKNOWN_PARTITION and partition is not None:
        cause = f"it has no partition {partition}"
    return ClientError(f"{deliveries.failed} not delivered to {topic}: {cause}", EXIT_FAILED)


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@click.option(
    "-g", "--group", help="Consumer group: go on where it stands, and commit. Without it, nothing is committed."
)
@click.option(
    "--from-beginning/--from-end", default=None,
    help="Where to start when the group has no offset yet. Default: the beginning without --group, the end with it.",
)  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when no record came for so long.",
)
@click.option(
    "--format", "record_format", type=click.Choice([each.value for each in RecordFormat]),
    default=RecordFormat.VALUE.value, show_default=True, help="How a record is written, one a line.",
)  # fmt: skip
def consume(
    topics: tuple[str, ...],
    bootstrap: Endpoint,
    group: str | None,
    from_beginning: bool | None,
    count: int | None,
    timeout: float | None,
    record_format: str,
) -> None:
    """Write the records of TOPIC... to stdout, one a line, until --count, --timeout or Ctrl-C.

    Exit code 1 when --timeout passed before --count records came, 3 when nothing answers.
    """
    start_at_beginning = from_beginning if from_beginning is not None else group is None
    consumer = Consumer(
        quiet(bootstrap, "kafka-mesh-consume")
        | {
            "group.id": group or f"kafka-mesh-consume-{uuid.uuid4()}",
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest" if start_at_beginning else "latest",
        }
    )
    try:
        _check_topics(consumer, bootstrap, topics, min(timeout or CONNECT_SECONDS, CONNECT_SECONDS))
        consumer.subscribe(list(topics))
        received = 0
        for message in _records(consumer, timeout):
            _write(_line(message, RecordFormat(record_format)))
            received += 1
            if group is not None:
                consumer.store_offsets(message)  # committed in the background, and by close()
            if received == count:
                return
        if count is not None:
            raise ClientError(f"{received} of {count} records came; none for {timeout:g} s", EXIT_FAILED)
    except KeyboardInterrupt:
        return
    finally:
        consumer.close()


def _check_topics(consumer: Consumer, endpoint: Endpoint, topics: Iterable[str], within: float) -> None:
    """Say at once that nothing answers, or that a topic is unknown (which may change while we wait)."""
    for topic in topics:
        try:
            found = consumer.list_topics(topic, timeout=within).topics[topic]
        except KafkaException as error:
            raise no_answer(endpoint, error.args[0].str()) from error
        if found.error is not None:
            click.echo(f"waiting: {unrouted(topic)}", err=True)


def _records(consumer: Consumer, timeout: float | None) -> Iterator[Message]:
    """Records as they come, until none came for `timeout` seconds."""
    last = time.monotonic()
    while timeout is None or time.monotonic() - last < timeout:
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            last = time.monotonic()
            yield message
        elif error.fatal():
            raise ClientError(f"the consumer failed: {error.str()}", EXIT_FAILED)
        elif error.code() not in _NO_TOPIC:
            click.echo(f"{error.name()}: {error.str()}", err=True)


def _line(message: Message, record_format: RecordFormat) -> bytes:
    value, key = message.value() or b"", message.key()
    if record_format is RecordFormat.VALUE:
        return value
    if record_format is RecordFormat.KEY_VALUE:
        return (key if key is not None else b"") + b"\t" + value
    _kind, timestamp = message.timestamp()
    headers = [{"name": name, "value": _text(content)} for name, content in _headers(message)]
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "key": _text(key),
        "value": _text(message.value()),
        "headers": headers,
    }
    return json.dumps(record, ensure_ascii=False).encode()


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # what a consumer gets is always a list; the type also covers what a producer may give
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _text(content: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as text; other bytes as {"base64": ...}."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _write(line: bytes) -> None:
    stream = click.get_binary_stream("stdout")
    stream.write(line + b"\n")
    stream.flush()
