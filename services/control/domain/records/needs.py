"""The topics that the clusters must have before a record rule can begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mesh.rpc import record_rules
from services.control.domain.records.flows import Names, names_of, target_names, targets_of


@dataclass(frozen=True, slots=True)
class TopicNeed:
    """A topic of a cluster that has to exist; if the name is empty, the cluster only has to answer."""

    cluster: str
    topic: str
    field: str
    """The field of the request that names the topic."""
    partitions: int = 0
    """The least number of partitions."""

    def unmet(self, topics: Mapping[str, int]) -> str:
        """The unmet need as a sentence; empty when it is met. `topics`: topics of the cluster -> their partitions."""
        if not self.topic:
            return ""
        if self.topic not in topics:
            return f"topic {self.topic!r} does not exist on cluster {self.cluster!r}; create it, or name another one"
        there = topics[self.topic]
        if there < self.partitions:
            highest = f"its partitions are 0 to {there - 1}"
            return f"topic {self.topic!r} on cluster {self.cluster!r} has no partition {self.partitions - 1}: {highest}"
        return ""


def needs_of(spec: record_rules.RecordRuleSpec) -> Sequence[TopicNeed]:
    """The needs of a whole rule."""
    needs = _mirror(spec.mirror) if spec.WhichOneof("kind") == "mirror" else _content(spec.content)
    return [*needs, *needs_of_offsets("record_rule.start", spec, spec.start)]


def needs_of_offsets(field: str, spec: record_rules.RecordRuleSpec, start: record_rules.StartAt) -> Sequence[TopicNeed]:
    """The needs of a place to begin: the partitions that it names."""
    if start.WhichOneof("kind") != "offsets":
        return ()
    kind = spec.WhichOneof("kind") or ""
    source = getattr(spec, kind).source_cluster
    partitions = max(start.offsets.offsets) + 1
    return (TopicNeed(source, start.offsets.topic, f"{field}.offsets", partitions),)


def _mirror(mirror: record_rules.MirrorSpec) -> Iterator[TopicNeed]:
    names = names_of(record_rules.RecordRuleSpec(mirror=mirror))
    yield TopicNeed(mirror.source_cluster, "" if names.prefix else names.text, "record_rule.mirror.topic")
    in_step = not mirror.HasField("keep_topics_in_step") or mirror.keep_topics_in_step
    target: Names = target_names(mirror)
    topic = "" if in_step or target.prefix else target.text
    yield TopicNeed(mirror.target_cluster, topic, "record_rule.mirror.target_topic")


def _content(content: record_rules.ContentRuleSpec) -> Iterator[TopicNeed]:
    yield TopicNeed(content.source_cluster, content.topic, "record_rule.content.topic")
    for field, target in targets_of(content):
        yield TopicNeed(target.cluster or content.source_cluster, target.topic, f"{field}.topic")
