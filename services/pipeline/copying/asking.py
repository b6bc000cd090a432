"""What a copy asks of clusters, and makes on them: topics, offsets, settings, notes. Blocks; every question has a time.

Notes are asked for partition by partition, and only stable ones count: a group that is asked for all that it has leaves
out what is just being committed, which would look as if nothing had been copied yet.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from services.pipeline.copying.errors import CopyError, RefusedError, SetbackError
from services.pipeline.copying.notes import Note
from services.pipeline.copying.reading import Place
from services.pipeline.copying.routes import SLOTS

CLIENT_ID = "kafka-mesh-pipeline"
NO_ID = str(Uuid(0, 0))
"""What clusters before Kafka 2.8 say, which have none."""
MOST_REPLICAS = 3
SLOTS_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000"}
"""Nobody writes records there."""
POLL_S = 0.05
"""Between two looks for what is about to be."""
MOVING_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""A group's, which is soon another one, or ready."""
REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
UNAUTHORIZED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


@dataclass(frozen=True, slots=True)
class Topic:
    """As its cluster shows it."""

    topic_id: str
    """Empty where the cluster has none."""
    partitions: int


class AskedCluster:
    """One cluster, as a driver or a task asks it."""

    def __init__(self, name: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._trouble = ""  # what librdkafka says beside its answers: why a connection is refused
        settings: dict[str, Any] = {**properties, "client.id": CLIENT_ID, "error_cb": self._heed}
        self._admin = AdminClient(settings)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """RefusedError for a topic that is not there."""
        described = self._all(
            self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s), "topic"
        )
        return {topic: Topic(_text_of(about.topic_id), len(about.partitions)) for topic, about in described.items()}

    def settings(self, topic: str) -> dict[str, str]:
        """Its configuration as it counts, defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        [entries] = self._all(
            self._admin.describe_configs([resource], request_timeout=self._timeout_s), "settings of"
        ).values()
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(dict.fromkeys(places, OffsetSpec.earliest()))  # type: ignore[no-untyped-call]

    def ends(self, places: Iterable[Place], *, committed: bool = True) -> dict[Place, int]:
        """Up to the last stable offset, or with what is not committed yet."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(dict.fromkeys(places, latest), committed=committed)

    def since(self, times: Mapping[Place, int]) -> dict[Place, int]:
        """Of the first committed record that is not older than this, in milliseconds since 1970; -1 where none is."""
        return self._offsets({place: OffsetSpec.for_timestamp(at) for place, at in times.items()})

    def _offsets(self, specs: Mapping[Place, Any], *, committed: bool = True) -> dict[Place, int]:
        if not specs:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(*place): spec for place, spec in specs.items()}
        futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout_s)
        return {
            (place.topic, place.partition): found.offset for place, found in self._all(futures, "offsets of").items()
        }

    def notes(self, group: str, partitions: Collection[int], *, stable: bool = True) -> dict[int, Note]:
        """What the group remembers, by partition. `stable`: waits until nothing is just being committed."""
        found: dict[int, Note] = {}
        left = set(partitions)
        deadline = time.monotonic() + self._timeout_s
        while left:
            for each in self._committed(group, left, stable):
                if each.error is not None and each.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                    continue
                if each.error is not None:
                    raise SetbackError(f"group {group} on cluster {self.name!r}: {each.error.str()}")
                left.discard(each.partition)
                if each.offset >= 0:
                    found[each.partition] = Note.of(each.offset, each.metadata or "")
            if left and time.monotonic() > deadline:
                raise SetbackError(f"group {group} on cluster {self.name!r} does not tell what it keeps")
            if left:
                time.sleep(POLL_S)
        return found

    def _committed(self, group: str, partitions: Collection[int], stable: bool) -> list[TopicPartition]:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(SLOTS, each) for each in sorted(partitions)])
        futures = self._admin.list_consumer_group_offsets(
            [asked], require_stable=stable, request_timeout=self._timeout_s
        )
        answers = self._all(futures, "group", accepted=MOVING_COORDINATOR).values()
        return [each for answer in answers for each in answer.topic_partitions]

    def ensure_slots(self, partitions: int) -> None:
        """SLOTS is there, with as many partitions."""
        metadata = self._ask(lambda: self._admin.list_topics(timeout=self._timeout_s))
        there = metadata.topics.get(SLOTS)
        count = len(there.partitions) if there is not None and there.error is None else 0
        futures: dict[Any, Future[Any]] = {}
        if count == 0:
            replicas = max(1, min(MOST_REPLICAS, len(metadata.brokers)))
            topic = NewTopic(SLOTS, partitions, replicas, config=SLOTS_SETTINGS)
            futures = self._admin.create_topics([topic], request_timeout=self._timeout_s)
        elif count < partitions:
            more = NewPartitions(SLOTS, partitions)
            futures = self._admin.create_partitions([more], request_timeout=self._timeout_s)
        # another replay's driver may be about the same
        self._all(futures, "topic", accepted=(KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS))
        self._await_slots(partitions)

    def _await_slots(self, partitions: int) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            metadata = self._ask(lambda: self._admin.list_topics(SLOTS, timeout=self._timeout_s))
            count = sum(1 for each in metadata.topics[SLOTS].partitions.values() if each.leader >= 0)
            if count >= partitions:
                return
            if time.monotonic() > deadline:
                raise SetbackError(f"topic {SLOTS} on cluster {self.name!r} has {count} of {partitions} partitions")
            time.sleep(POLL_S)

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except KafkaException as failure:
            raise self._problem(failure, "a question") from failure

    def _all(self, futures: Mapping[Any, Future[Any]], what: str, accepted: Collection[int] = ()) -> dict[Any, Any]:
        found = {}
        for about, future in futures.items():
            try:
                found[about] = future.result(self._timeout_s)
            except KafkaException as failure:
                if failure.args[0].code() not in accepted:
                    raise self._problem(failure, f"{what} {_name_of(about)}") from failure
            except TimeoutError as failure:
                raise SetbackError(
                    f"{what} {_name_of(about)}: no answer from cluster {self.name!r} in {self._timeout_s:g} s"
                ) from failure
        return found

    def _heed(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self._trouble = f" ({error.str()})"

    def _problem(self, failure: KafkaException, place: str) -> CopyError | SetbackError:
        error: KafkaError = failure.args[0]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return RefusedError(f"{place} is not on cluster {self.name!r}; create it, or name another one")
        if error.code() in UNAUTHORIZED:
            return RefusedError(
                f"{place} on cluster {self.name!r}: {error.str()}; the pipeline's user needs that right"
            )
        self._admin.poll(0)  # _heed
        return SetbackError(f"{place} on cluster {self.name!r}: {error.str()}{self._trouble}")


def _name_of(about: Any) -> str:
    match about:
        case TopicPartition():
            return f"{about.topic}/{about.partition}"
        case ConfigResource():
            return str(about.name)
    return str(about)


def _text_of(topic_id: Any) -> str:
    text = str(topic_id) if topic_id is not None else NO_ID
    return "" if text == NO_ID else text
