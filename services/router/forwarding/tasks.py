"""The task of the mover for a rule of any kind: clusters, topics, and a plan for its records. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mesh.judging.records import Content, Record
from mesh.rpc import record_rules
from services.router.forwarding.distribution import places_of
from services.router.forwarding.records import Judge, Plan, Transformer, Write
from services.router.forwarding.topics import MirroredTopics


class Judging(Protocol):
    """Compiles the parts of rules that are about records. ValueError: the text can't be compiled, and why."""

    def judge(self, expression: str) -> Judge: ...
    def transformer(self, transforms: Sequence[record_rules.Transform]) -> Transformer: ...
    def content_plan(self, rule_id: str, spec: record_rules.ContentRuleSpec) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Task:
    """A rule as the mover carries it out."""

    rule_id: str
    source: str
    """cluster_name."""
    targets: tuple[str, ...]
    """cluster_names; a mirror has one."""
    topic: str
    """The topic of a rule about one topic, else empty: such a rule reports an absent topic."""
    plan: Plan | None
    """None: every record is copied as it is."""
    mirror: MirroredTopics | None
    """None: a content rule."""
    in_step: bool
    start: record_rules.StartAt
    groups: record_rules.GroupOffsets | None
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Topics that have to be on each target before the rule begins. A mirror makes its own."""

    def takes(self, topic: str) -> bool:
        """Whether the rule is about this topic of the source."""
        return topic == self.topic if self.mirror is None else self.mirror.takes(topic)


def task_of(spec: record_rules.RecordRuleSpec, judging: Judging) -> Task:
    """The task of a rule. ValueError: it can't be carried out, and why."""
    if spec.WhichOneof("kind") == "mirror":
        return _mirror(spec, judging)
    content = spec.content
    needed: dict[str, frozenset[str]] = {}
    for cluster, topic in places_of(content):
        needed[cluster] = needed.get(cluster, frozenset()) | {topic}
    plan = judging.content_plan(spec.record_rule_id, content)
    return Task(
        spec.record_rule_id,
        content.source_cluster,
        tuple(needed),
        content.topic,
        plan,
        None,
        False,
        spec.start,
        None,
        needed,
    )


def _mirror(spec: record_rules.RecordRuleSpec, judging: Judging) -> Task:
    mirror = spec.mirror
    topics = MirroredTopics.of(mirror)
    plan = None
    if mirror.filter or mirror.transforms:
        judge = judging.judge(mirror.filter) if mirror.filter else None
        transformer = judging.transformer(mirror.transforms) if mirror.transforms else None
        plan = _MirrorPlan(topics, mirror.target_cluster, judge, transformer)
    return Task(
        spec.record_rule_id,
        mirror.source_cluster,
        (mirror.target_cluster,),
        mirror.topic,
        plan,
        topics,
        mirror.keep_topics_in_step if mirror.HasField("keep_topics_in_step") else True,
        spec.start,
        mirror.group_offsets if mirror.HasField("group_offsets") else None,
    )


class _MirrorPlan:
    """Same partition, key and timestamp; what the judge takes, as the transformer leaves it."""

    def __init__(
        self, topics: MirroredTopics, cluster: str, judge: Judge | None, transformer: Transformer | None
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._judge = judge
        self._transformer = transformer

    def __call__(self, record: Record) -> Sequence[Write]:
        if self._judge is not None and not self._judge(record):
            return ()
        content = Content(record.value(), record.headers() or [])
        if self._transformer is not None:
            content = self._transformer(content)
        topic = self._topics.target(record.topic())
        timestamp = record.timestamp()[1]
        return (
            Write(self._cluster, topic, record.partition(), record.key(), content.value, content.headers, timestamp),
        )
