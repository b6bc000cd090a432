"""Topics in step: reads the topics of both clusters, and makes the changes on the target that `topics` computes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import KafkaError, TopicCollection, Uuid
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from services.router.forwarding import memory
from services.router.forwarding.connections import REQUEST_TIMEOUT, Cluster, Setback, answers
from services.router.forwarding.topics import Step, TopicState, step

POSITIONS_SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
MOST_REPLICAS = 3
"""Replicas of the topic of positions: as many as the cluster has brokers, at most this many."""
NO_ID = str(Uuid(0, 0))
"""The topic id that clusters before Kafka 2.8 return, which have no topic ids."""
VISIBLE_POLL = 0.05
"""Seconds between two checks for topics that were created."""


def partition_counts(cluster: Cluster) -> dict[str, int]:
    """Every topic of a cluster with its number of partitions."""
    return counts_of(cluster.metadata())


def counts_of(metadata: Any) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def topic_ids(cluster: Cluster, topics: Collection[str]) -> dict[str, str]:
    """Kafka's own ids of these topics: another one when a topic of the name was deleted and created again."""
    if not topics:
        return {}
    wanted = TopicCollection(list(topics))
    futures = cluster.ask(lambda admin: admin.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT))
    found = answers(futures, f"topic on cluster {cluster.name!r}", accepted=[KafkaError.UNKNOWN_TOPIC_OR_PART])
    return {topic: str(each.topic_id) for topic, each in found.items() if str(each.topic_id) != NO_ID}


def ensure_positions(target: Cluster, metadata: Any) -> None:
    """Creates the topic of positions if it is not there yet. Setback: it is there, and not as it has to be."""
    counts = counts_of(metadata)
    if memory.TOPIC not in counts:
        replicas = max(1, min(MOST_REPLICAS, len(metadata.brokers)))
        new = NewTopic(memory.TOPIC, memory.PARTITIONS, replicas, config=POSITIONS_SETTINGS)
        _create(target, [new])
    elif counts[memory.TOPIC] != memory.PARTITIONS:
        raise Setback(
            f"topic {memory.TOPIC} on cluster {target.name!r} has {counts[memory.TOPIC]} partitions, not "
            f"{memory.PARTITIONS}: delete it if it is not the mesh's"
        )


def keep_in_step(source: Cluster, target: Cluster, names: Mapping[str, str], source_counts: Mapping[str, int]) -> None:
    """Creates, widens and configures topics of the target; `names`: topic -> its name there."""
    if not names:
        return
    target_counts = partition_counts(target)
    there = [name for name in names.values() if name in target_counts]
    source_settings, target_settings = _settings(source, names), _settings(target, there)
    steps = {
        name: step(
            TopicState(source_counts[topic], source_settings[topic]),
            TopicState(target_counts[name], target_settings[name]) if name in target_counts else None,
        )
        for topic, name in names.items()
    }
    created = [
        NewTopic(name, each.create.partitions, -1, config=dict(each.create.settings))
        for name, each in steps.items()
        if each.create
    ]
    if created:
        _create(target, created)
    widened = [NewPartitions(name, each.partitions) for name, each in steps.items() if each.partitions]
    if widened:
        place = f"partitions on cluster {target.name!r}"
        answers(target.ask(lambda admin: admin.create_partitions(widened, request_timeout=REQUEST_TIMEOUT)), place)
        _wait_for(target, {name: each.partitions for name, each in steps.items() if each.partitions})
    changed = [_alteration(name, each) for name, each in steps.items() if each.put or each.drop]
    if changed:
        place = f"settings on cluster {target.name!r}"
        answers(
            target.ask(lambda admin: admin.incremental_alter_configs(changed, request_timeout=REQUEST_TIMEOUT)),
            place,
        )


def _create(cluster: Cluster, new: list[NewTopic]) -> None:
    place = f"topic on cluster {cluster.name!r}"
    futures = cluster.ask(lambda admin: admin.create_topics(new, request_timeout=REQUEST_TIMEOUT))
    answers(futures, place, accepted=[KafkaError.TOPIC_ALREADY_EXISTS])
    _wait_for(cluster, {each.topic: each.num_partitions for each in new})


def _wait_for(cluster: Cluster, wanted: Mapping[str, int]) -> None:
    """Brokers hear of new partitions a moment after the controller."""
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while any(partition_counts(cluster).get(name, 0) < count for name, count in wanted.items()):
        if time.monotonic() > deadline:
            raise Setback(f"cluster {cluster.name!r}: new partitions of {', '.join(sorted(wanted))} do not show up")
        time.sleep(VISIBLE_POLL)


def _settings(cluster: Cluster, topics: Collection[str]) -> dict[str, dict[str, str]]:
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = cluster.ask(lambda admin: admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT))
    described = answers(futures, f"settings on cluster {cluster.name!r}")
    return {
        resource.name: {
            entry.name: entry.value
            for entry in entries.values()
            if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
        }
        for resource, entries in described.items()
    }


def _alteration(name: str, each: Step) -> ConfigResource:
    put = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in (each.put or {}).items()
    ]
    drop = [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in each.drop]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=[*put, *drop])
