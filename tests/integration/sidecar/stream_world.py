"""Topologies of tests: a module of their source, loaded by a sidecar as any user's, and what came out of them."""

from __future__ import annotations

import os
import textwrap
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import WITHIN_SECONDS, Kafka, SidecarWorld

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

    def wait_for(self, topic: str, count: int) -> list[Out]:
        """Exactly so many records."""
        found = wait_until(
            lambda: records if len(records := self.committed(topic)) >= count else None,
            f"{count} records in {topic}",
            WITHIN_SECONDS,
        )
        assert len(found) == count, found
        return found

    def wait_for_last(self, topic: str, last: dict[str, Any]) -> None:
        """The last value of each key becomes this."""
        seen: list[dict[str, Any]] = []

        def is_there() -> bool:
            seen.append({one.key: one.value for one in self.committed(topic)})
            return seen[-1] == last

        try:
            wait_until(is_there, f"the last values in {topic}", WITHIN_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {seen[-1]}, not {last}") from None


def committed_records(bootstrap: str, topic: str) -> list[Out]:
    """What a reader of committed records has, up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[Out] = []
    try:
        left = set(consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, one, 0) for one in left])
        while left:
            message = consumer.poll(WITHIN_SECONDS)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition() or 0)
                continue
            key, value = message.key(), message.value()
            headers: Any = message.headers() or ()
            found.append(Out(_text(key), _json(value), dict(headers)))
    finally:
        consumer.close()
    return found


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
