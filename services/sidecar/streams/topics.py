"""The topics that a topology reads, and its internal topics. All calls block, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.sidecar.streams.plan import Part, Plan, check_partitions
from services.sidecar.streams.records import TopologyError
from services.sidecar.streams.store import TOMBSTONES_SECONDS

ASK_SECONDS = 10.0

log = structlog.get_logger(__name__)


class TopicsMissingError(Exception):
    """Topics are missing that others have to make first."""


class StreamTopics:
    """Reads and makes topics on one cluster."""

    def __init__(self, properties: Mapping[str, Any], *, replication: int) -> None:
        self._admin = AdminClient({**properties, "allow.auto.create.topics": False})
        self._replication = replication

    def prepare(self, plan: Plan) -> dict[str, int]:
        """Makes the internal topics that are missing. Returns the partitions of all sources, by topic.

        TopologyError for a topology that cannot run; TopicsMissingError; KafkaException.
        """
        there = {
            name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=ASK_SECONDS).topics.items()
        }
        counts = self._sources(plan, there)
        check_partitions(plan, counts)
        wanted = [
            NewTopic(topic, counts[topic], self._replication, config={"cleanup.policy": "delete", "retention.ms": "-1"})
            for part in plan.parts
            for topic, source in part.sources.items()
            if source.is_internal and topic not in there
        ]
        for part in plan.parts:
            for store in part.stores:
                self._check_changelog(plan, store, counts[part.lead], there)
                if plan.changelog(store) not in there:
                    config = {"cleanup.policy": "compact", "delete.retention.ms": f"{TOMBSTONES_SECONDS * 1000:.0f}"}
                    wanted.append(NewTopic(plan.changelog(store), counts[part.lead], self._replication, config=config))
        self._make(wanted)
        return counts

    def forget(self, done: Mapping[tuple[str, int], int]) -> None:
        """Deletes the records of internal topics before these offsets."""
        if not done:
            return
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
        for place, future in self._admin.delete_records(places, request_timeout=ASK_SECONDS).items():
            try:
                future.result(ASK_SECONDS)
            except KafkaException as error:
                log.warning("a repartition keeps records that are done with", topic=place.topic, error=str(error))

    def _sources(self, plan: Plan, there: Mapping[str, int]) -> dict[str, int]:
        missing = sorted(
            topic
            for part in plan.parts
            for topic, source in part.sources.items()
            if not source.is_internal and topic not in there
        )
        if missing:
            raise TopicsMissingError(f"there is no topic {', '.join(missing)} that this sidecar can see; make it")
        counts: dict[str, int] = {}

        def count_of(part: Part, topic: str, above: tuple[str, ...]) -> int:
            source = part.sources[topic]
            if topic in there:
                return there[topic]
            if source.partitions is not None:
                return source.partitions
            outer = [there[one] for one, other in part.sources.items() if not other.is_internal]
            if outer:
                return outer[0]
            writers = [one for one in plan.parts if any(plan.topic_of(target) == topic for target in one.targets)]
            found = [
                count_of(one, name, (*above, topic)) for one in writers for name in one.sources if name not in above
            ]
            return max(found, default=1)

        for part in plan.parts:
            for topic in part.sources:
                counts[topic] = count_of(part, topic, (topic,))
        return counts

    def _check_changelog(self, plan: Plan, store: str, partitions: int, there: Mapping[str, int]) -> None:
        topic = plan.changelog(store)
        if there.get(topic, partitions) != partitions:
            raise TopologyError(
                f"Topology {plan.name!r}: {topic} has {there[topic]} partitions, and what feeds store {store!r} has "
                f"{partitions}: entries would be in other partitions; give that store another name"
            )

    def _make(self, wanted: Iterable[NewTopic]) -> None:
        topics = list(wanted)
        if not topics:
            return
        for name, future in self._admin.create_topics(topics, request_timeout=ASK_SECONDS).items():
            try:
                future.result(ASK_SECONDS)
                log.info("topic of a topology made", topic=name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another instance was first
                    raise
