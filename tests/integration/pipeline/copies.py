"""A copy under test: ordered as serve orders it, read back by a plain client that sees committed records alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name

from mesh.rpc import replays
from services.pipeline.copying.origins import Archive
from services.pipeline.copying.replay import Replaying, Work
from services.pipeline.copying.tasks import Access, LaneTask, count_lane
from services.pipeline.copying.transactions import copy_lane
from services.pipeline.driver_protocol.orders import Order
from services.pipeline.kafka.positions import Place
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Content, Headers, Orchard

TIMEOUT_S = STALL_S = 60.0
SLOTS = 2
SOURCE, TARGET = "green", "ripe"
"""How the clusters are registered."""


class InThreads:
    """Runs tasks as Spark does, but here: what is tested without it takes no session."""

    def slots(self) -> int:
        return SLOTS

    def run(self, tasks: Sequence[LaneTask], access: Access, *, dry_run: bool) -> dict[Place, int]:
        work = count_lane if dry_run else copy_lane
        with ThreadPoolExecutor(SLOTS) as pool:
            results = list(pool.map(lambda task: work(task, access), tasks))
        return {place: count for counted in results for place, count in (counted or {}).items()}

    def cancel(self) -> None:
        """Threads go on to their end."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A record of the target."""

    partition: int
    content: Content

    def header(self, name: str) -> bytes | None:
        return dict(self.content.headers).get(name)

    @property
    def original(self) -> Content:
        """Without what the copy says about itself."""
        headers = tuple(each for each in self.content.headers if not each[0].startswith("mesh-replay-"))
        return Content(self.content.key, self.content.value, headers, self.content.timestamp_ms)


@dataclass(slots=True)
class Ended:
    """What a run has reported."""

    reports: list[replays.ReportReplayRequest] = field(default_factory=list)

    @property
    def state(self) -> str:
        return replays.ReplayState.Name(self.reports[-1].state).removeprefix("REPLAY_STATE_")

    @property
    def description(self) -> str:
        return self.reports[-1].description

    @property
    def partitions(self) -> dict[Place, replays.ReplayPartition]:
        return {(each.topic, each.partition): each for report in self.reports for each in report.partitions}

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions.values())


class Grove:
    """Two clusters, topics on the target, and copies between them."""

    def __init__(self, source: str, target: str, name: str) -> None:
        self.clusters = {SOURCE: {"bootstrap.servers": source}, TARGET: {"bootstrap.servers": target}}
        self.name = name
        self.target = f"{name}-copy"
        self._admin = AdminClient({"bootstrap.servers": target})
        self._topics: list[str] = []

    def create_target(self, partitions: int = 3, topic: str | None = None, **settings: str) -> None:
        config = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in settings.items()}}
        name = topic or self.target
        for future in self._admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(TIMEOUT_S)
        self._topics.append(name)
        await_leaders(self._admin, name, partitions)

    def clear(self) -> None:
        for future in self._admin.delete_topics(self._topics).values() if self._topics else ():
            future.result(TIMEOUT_S)
        self._topics.clear()

    def order(self, source: str, *, ranges: Sequence[replays.ReplayRange] = (), **said: Any) -> Order:
        """Of a copy of a topic to `target`; what is said besides is ReplayToTopic's, or ReplaySpec's."""
        of_spec = {name: said.pop(name) for name in ("rate", "dry_run") if name in said}
        copy = replays.ReplayToTopic(
            **{"topic": self.target, "cluster": TARGET, "source_cluster": SOURCE, "group": self.name, **said}
        )
        asked = list(ranges) or [replays.ReplayRange(topic=source)]
        spec = replays.ReplaySpec(ranges=asked, topic=copy, **of_spec)
        return Order(replays.Replay(name=f"replays/{self.name}", spec=spec), self.clusters)

    def run(
        self,
        order: Order,
        *,
        work: Work | None = None,
        archive: Archive | None = None,
        stopping: threading.Event | None = None,
        stall_s: float = STALL_S,
        tell: Callable[[Ended], None] = lambda _ended: None,
    ) -> Ended:
        """`tell` is told of each report."""
        ended = Ended()

        def report(said: replays.ReportReplayRequest) -> None:
            ended.reports.append(said)
            tell(ended)

        replaying = Replaying(
            order,
            archive,
            work or InThreads(),
            report,
            stopping or threading.Event(),
            timeout_s=TIMEOUT_S,
            stall_timeout_s=stall_s,
        )
        assert replaying.run() == ended.reports[-1].state
        return ended

    def copies(self, topic: str | None = None) -> list[Copied]:
        """All that readers of committed records see, partition by partition, in order. They see it to the very end."""
        return read_back(self.clusters[TARGET], topic or self.target)


def read_back(properties: Mapping[str, str], topic: str, *, within_s: float = 60.0) -> list[Copied]:
    """Fails where an open transaction keeps an end from being read."""
    ends = log_ends(properties, topic)
    settings = {"group.id": "tests", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer: Any = Consumer({**properties, **settings, "auto.offset.reset": "error", "fetch.wait.max.ms": 50})
    found: dict[int, list[Copied]] = {partition: [] for partition in ends}
    at = dict.fromkeys(ends, 0)
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        while at != ends:
            what = f"{topic} is readable up to {ends}, stands at {at}"
            for message in wait_until(lambda: consumer.consume(1000, 0.05), what, within_s):
                partition, error = message.partition(), message.error()
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                at[partition] = message.offset() + (1 if error is None else 0)
                if error is None:
                    headers: Headers = tuple(message.headers() or ())
                    content = Content(message.key(), message.value(), headers, message.timestamp()[1])
                    found[partition].append(Copied(partition, content))
    return [copy for partition in sorted(found) for copy in found[partition]]


def log_ends(properties: Mapping[str, str], topic: str, *, committed: bool = False) -> dict[int, int]:
    """The end of each partition, or up to where no transaction is open."""
    admin = AdminClient(dict(properties))
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for partition in partitions}
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    found = admin.list_offsets(asked, isolation_level=isolation)
    return {place.partition: future.result(TIMEOUT_S).offset for place, future in found.items()}


def by_place(copies: Sequence[Copied]) -> dict[bytes, Content]:
    """Copies by what they say of their source; each place once."""
    found = {each.header("mesh-replay-source") or b"": each.original for each in copies}
    assert len(found) == len(copies), "copied twice"
    return found


def originals(orchard: Orchard, *partitions: int) -> dict[bytes, Content]:
    """What is in the source, by what copies say of it."""
    return {
        f"{SOURCE}/{place.topic}/{place.partition}/{place.offset}".encode(): content
        for place, content in orchard.records.items()
        if not partitions or place.partition in partitions
    }
