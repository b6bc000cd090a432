"""Topologies of tests: a module of their source, loaded by a sidecar as any user's, and what came out of them."""

from __future__ import annotations

import os
import textwrap
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import WITHIN_SECONDS, Kafka, SidecarWorld, ends_of, reached

AT_ONCE = 1000
POLL_SECONDS = 0.02
HEAD = """\
from services.sidecar.streams import Format, OnError, Topology, Tumbling

P = "{prefix}"
"""


@dataclass(frozen=True)
class Out:
    """A committed record."""

    key: Any
    value: Any
    headers: dict[str, bytes] = field(default_factory=dict, compare=False)


@dataclass
class StreamWorld:
    """Topics and topologies of one test module, each with a name of its own."""

    kafka: Kafka
    folder: Path
    prefix: str = field(default_factory=lambda: f"S-{uuid.uuid4().hex[:8]}-")

    @property
    def module(self) -> str:
        return f"topologies_{self.prefix[2:-1]}"

    def define(self, source: str) -> None:
        """The module's source is this from now on."""
        file = self.folder / f"{self.module}.py"
        before = file.stat().st_mtime if file.exists() else 0.0
        file.write_text(HEAD.format(prefix=self.prefix) + textwrap.dedent(source))
        os.utime(file, (before + 10, before + 10) if before else None)  # compiled Python is told apart by seconds

    def reference(self, *names: str) -> str:
        return ",".join(f"{self.module}:{name}" for name in names)

    def create(self, *topics: str, partitions: int = 2) -> None:
        for topic in topics:
            self.kafka.create(self.prefix + topic, partitions)

    def write(self, topic: str, *records: tuple[Any, Any], timestamp: int | None = None, raw: bool = False) -> None:
        """Keys as text, values as JSON."""
        more = {} if timestamp is None else {"timestamp": timestamp}
        self.kafka.write(
            self.prefix + topic,
            *({"key": key, "value": value if raw else orjson.dumps(value), **more} for key, value in records),
        )

    def committed(self, topic: str) -> list[Out]:
        """All that is committed by now, partition by partition."""
        return committed_records(self.kafka.bootstrap, self.prefix + topic)

    def following(self, topic: str) -> CommittedReader:
        """Close it."""
        return CommittedReader(self.kafka.bootstrap, self.prefix + topic)

    def wait_for(self, topic: str, count: int) -> list[Out]:
        """Exactly so many records."""
        with closing(self.following(topic)) as reader:
            wait_until(lambda: len(reader.so_far()) >= count, f"{count} records in {topic}", WITHIN_SECONDS)
        found = self.committed(topic)
        assert len(found) == count, found
        return found

    def wait_for_last(self, topic: str, last: dict[str, Any]) -> None:
        """The last value of each key becomes this."""
        seen: dict[str, Any] = {}

        def is_there() -> bool:
            seen.update((one.key, one.value) for one in reader.so_far())
            return seen == last

        with closing(self.following(topic)) as reader:
            try:
                wait_until(is_there, f"the last values in {topic}", WITHIN_SECONDS)
            except TimeoutError as error:
                raise TimeoutError(f"{error}: {seen}, not {last}") from None


class CommittedReader:
    """Reads the committed records of a topic from the start, as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        self._bootstrap, self._topic = bootstrap, topic
        partitions = self._consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        self._found: list[Out] = []

    def so_far(self) -> list[Out]:
        """All records until now."""
        for message in self._consumer.consume(AT_ONCE, POLL_SECONDS):
            self._take(message)
        return self._found

    def to_the_end(self) -> list[Out]:
        """All records until each partition has been read to its end, as it is now, and no transaction is open there."""
        left = ends_of(self._bootstrap, self._topic)
        while left:
            message = self._consumer.poll(WITHIN_SECONDS)
            assert message is not None, f"{self._topic}: no end of partitions {left}"
            if self._take(message):
                reached(left, message)
        return self._found

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> bool:
        """Whether the message says that its partition has no more records now."""
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return True
        self._found.append(Out(_text(message.key()), _json(message.value()), dict(_headers(message))))
        return False


def committed_records(bootstrap: str, topic: str) -> list[Out]:
    """What a reader of committed records has, up to the end."""
    with closing(CommittedReader(bootstrap, topic)) as reader:
        return reader.to_the_end()


def _headers(message: Message) -> Any:
    return message.headers() or ()


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()


def _json(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def streams_of(sidecar: SidecarWorld) -> dict[str, dict[str, Any]]:
    """What /adm/streams tells, by name."""
    answer = sidecar.http.get("/adm/streams")
    assert answer.status_code == 200, answer.text
    return {one["name"]: one for one in answer.json()}


def wait_for_state(sidecar: SidecarWorld, name: str, state: str) -> dict[str, Any]:
    return wait_until(
        lambda: one if (one := streams_of(sidecar)[name])["state"] == state else None,
        f"{name} is {state}",
        WITHIN_SECONDS,
    )
