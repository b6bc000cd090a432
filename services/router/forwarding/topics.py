"""The topics that a mirror copies, their names on the target, and the changes that keep both in step. No I/O.

Two kinds of settings are not carried over. The first are settings of replicas and disks, because the other cluster may
have other brokers. The second is the kind of timestamps, because records keep their timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mesh.rpc import record_rules

INTERNAL = ("__", "mesh.")
"""Beginnings of topics that Kafka and the mesh have for themselves."""
NOT_CARRIED_OVER = (
    "confluent.",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.",
    "message.timestamp.type",
    "min.insync.replicas",
    "remote.",
    "unclean.leader.election.enable",
)
"""Beginnings of names of settings."""
_PLACEHOLDER = re.compile(r"\{(topic|suffix|source_cluster)\}")


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as a cluster describes it."""

    partitions: int
    settings: Mapping[str, str]
    """Made on the topic; defaults are not here."""


@dataclass(frozen=True, slots=True)
class MirroredTopics:
    """The topics of a mirror."""

    source_cluster: str
    topic: str
    prefix: str | None
    template: str

    @classmethod
    def of(cls, spec: record_rules.MirrorSpec) -> MirroredTopics:
        prefix = spec.topic_prefix if spec.WhichOneof("topics") == "topic_prefix" else None
        return cls(spec.source_cluster, spec.topic, prefix, spec.target_topic or "{topic}")

    def takes(self, topic: str) -> bool:
        """Whether this topic of the source is copied."""
        if self.prefix is None:
            return topic == self.topic
        return topic.startswith(self.prefix) and not topic.startswith(INTERNAL)

    def target(self, topic: str) -> str:
        """Its name on the target."""
        known = {
            "topic": topic,
            "suffix": topic.removeprefix(self.prefix or ""),
            "source_cluster": self.source_cluster,
        }
        return _PLACEHOLDER.sub(lambda found: known[found[1]], self.template)


@dataclass(frozen=True, slots=True)
class Step:
    """The change that brings a topic of the target in step; empty if the topic is in step."""

    create: TopicState | None = None
    partitions: int = 0
    """Raise it to so many; 0: leave it."""
    put: Mapping[str, str] | None = None
    """Settings to make."""
    drop: tuple[str, ...] = ()
    """Settings to take back to the cluster's default."""


def step(source: TopicState, target: TopicState | None) -> Step:
    """The change that makes the target like the source. Partitions can't be removed; a target with more partitions
    keeps them.
    """
    wanted = {name: value for name, value in source.settings.items() if _is_carried_over(name)}
    if target is None:
        return Step(create=TopicState(source.partitions, wanted))
    there = {name: value for name, value in target.settings.items() if _is_carried_over(name)}
    return Step(
        partitions=source.partitions if source.partitions > target.partitions else 0,
        put={name: value for name, value in wanted.items() if there.get(name) != value} or None,
        drop=tuple(sorted(there.keys() - wanted.keys())),
    )


def _is_carried_over(name: str) -> bool:
    return not name.startswith(NOT_CARRIED_OVER)
