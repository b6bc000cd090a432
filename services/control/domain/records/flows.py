"""The source and the targets of a record rule, and whether some records would go round for ever.

A mirror between two clusters is no part of a loop. It writes into each record where the record has been, and takes no
record back there. A content rule has no such memory, nor has a mirror within one cluster; this module checks those by
the names of their topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mesh.routing import Place, RoutingTable
from mesh.routing.templates import TopicTemplate
from mesh.rpc import record_rules
from services.control.domain.dry_runs.profiles import Arrival
from services.control.domain.errors import NotAllowed

SOURCE_CLUSTER = "{source_cluster}"
SAME_NAME = "{topic}"


@dataclass(frozen=True, slots=True)
class Names:
    """Topic names: one name, or all names that begin with a text."""

    text: str
    prefix: bool = False

    def take(self, topic: str) -> bool:
        return topic.startswith(self.text) if self.prefix else topic == self.text

    def meet(self, other: Names) -> bool:
        """Whether some name can be in both."""
        match self.prefix, other.prefix:
            case True, True:
                return self.text.startswith(other.text) or other.text.startswith(self.text)
            case True, False:
                return self.take(other.text)
            case _:
                return other.take(self.text)


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """Topics of one cluster."""

    cluster: str
    names: Names

    def meets(self, other: ClusterTopics) -> bool:
        return self.cluster == other.cluster and self.names.meet(other.names)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.names.text}{'*' if self.names.prefix else ''}"


@dataclass(frozen=True, slots=True)
class Flow:
    """The source of one rule, and the topics to which it writes records without noting where they have been."""

    rule_id: str
    source: ClusterTopics
    targets: tuple[ClusterTopics, ...]

    def feeds(self, other: Flow) -> bool:
        return any(target.meets(other.source) for target in self.targets)


def names_of(spec: record_rules.RecordRuleSpec) -> Names:
    """The topics that the rule reads on its source cluster. InvalidRuleError when its name template is wrong."""
    if spec.WhichOneof("kind") == "content":
        return Names(spec.content.topic)
    template_of(spec.mirror)
    is_prefix = spec.mirror.WhichOneof("topics") == "topic_prefix"
    return Names(spec.mirror.topic_prefix, prefix=True) if is_prefix else Names(spec.mirror.topic)


def template_of(mirror: record_rules.MirrorSpec) -> TopicTemplate:
    """The names of a mirror's topics on its target. InvalidRuleError says what is wrong with the template."""
    text = (mirror.target_topic or SAME_NAME).replace(SOURCE_CLUSTER, mirror.source_cluster)
    prefix = mirror.topic_prefix if mirror.WhichOneof("topics") == "topic_prefix" else None
    return TopicTemplate.of(text, prefix=prefix, pattern=None, single=prefix is None)


def target_names(mirror: record_rules.MirrorSpec) -> Names:
    """The topics that a mirror writes on its target cluster."""
    template = template_of(mirror)
    if mirror.WhichOneof("topics") == "topic":
        return Names(template.upstream(mirror.topic))
    begin = template.pieces[0]
    return Names(begin + mirror.topic_prefix if template.pieces[1] == "topic" else begin, prefix=True)


def clusters_of(spec: record_rules.RecordRuleSpec) -> set[str]:
    """Names of all clusters that the rule reads from or writes to."""
    parts = {part.cluster_name for part in spec.copy.parts}
    return {getattr(spec, spec.WhichOneof("kind") or "").source_cluster, *parts, *written_clusters(spec)}


def written_clusters(spec: record_rules.RecordRuleSpec) -> set[str]:
    """Names of the clusters that the rule writes to."""
    if spec.WhichOneof("kind") == "mirror":
        return {spec.mirror.target_cluster}
    if spec.WhichOneof("kind") == "copy":
        return {spec.copy.target_cluster}
    return {target.cluster or spec.content.source_cluster for _, target in targets_of(spec.content)}


def targets_of(content: record_rules.ContentRuleSpec) -> Iterator[tuple[str, record_rules.RecordTarget]]:
    """Every topic that a content rule writes to, with the field that names it."""
    for number, branch in enumerate(content.branches):
        yield f"record_rule.content.branches[{number}].target", branch.target
    if content.HasField("otherwise"):
        yield "record_rule.content.otherwise", content.otherwise
    yield "record_rule.content.dead_letters", dead_letters_of(content)


def dead_letters_of(content: record_rules.ContentRuleSpec) -> record_rules.RecordTarget:
    """The target of records that the rule can't judge: the rule's own, or "{topic}.dlq" on the source cluster."""
    if content.HasField("dead_letters"):
        return content.dead_letters
    return record_rules.RecordTarget(cluster=content.source_cluster, topic=f"{content.topic}.dlq")


def flow_of(spec: record_rules.RecordRuleSpec) -> Flow:
    """The rule as a flow."""
    if spec.WhichOneof("kind") == "mirror":
        mirror = spec.mirror
        within = mirror.source_cluster == mirror.target_cluster
        written = (ClusterTopics(mirror.target_cluster, target_names(mirror)),) if within else ()
        return Flow(spec.record_rule_id, ClusterTopics(mirror.source_cluster, names_of(spec)), written)
    content = spec.content
    source = content.source_cluster
    targets = tuple(ClusterTopics(each.cluster or source, Names(each.topic)) for _, each in targets_of(content))
    return Flow(spec.record_rule_id, ClusterTopics(source, names_of(spec)), targets)


def arrivals_of_rule(spec: record_rules.RecordRuleSpec, table: RoutingTable, profiled: Iterable[str]) -> list[Arrival]:
    """The places to which a mirror copies the records of the topics that have a profile."""
    if spec.WhichOneof("kind") != "mirror":
        return []
    mirror, names, template = spec.mirror, names_of(spec), template_of(spec.mirror)
    found: list[Arrival] = []
    for topic in profiled:
        route = table.route(topic)
        if route is None or route.cluster != mirror.source_cluster or not names.take(route.upstream_topic):
            continue
        found.append(Arrival(topic, Place(mirror.target_cluster, template.upstream(route.upstream_topic))))
    return found


def refuse_loops(new: Flow, others: Iterable[Flow]) -> None:
    """Refuses a rule whose records would come back to it; the error names the rules on the way."""
    flows = [each for each in others if each.targets]
    way = _way_back(new, flows)
    if way is None:
        return
    name = f"recordrules/{new.rule_id}"
    if not way:
        text = f"record rule {new.rule_id!r} would write to {new.source}, which it reads: its records would go round"
        raise NotAllowed("RECORD_LOOP", name, f"{text} for ever; give it another target")
    names = " -> ".join([new.rule_id, *(each.rule_id for each in way), new.rule_id])
    text = f"records would go round for ever: {names}; give one of these rules another target"
    raise NotAllowed("RECORD_LOOP", name, text)


def _way_back(new: Flow, flows: Sequence[Flow]) -> list[Flow] | None:
    """The shortest way through other rules from the targets of `new` to its source; empty if `new` feeds itself."""
    ways: list[list[Flow]] = [[]]
    seen: set[str] = set()
    while ways:
        following: list[list[Flow]] = []
        for way in ways:
            last = way[-1] if way else new
            if last.feeds(new):
                return way
            for each in flows:
                if each.rule_id not in seen and last.feeds(each):
                    seen.add(each.rule_id)
                    following.append([*way, each])
        ways = following
    return None
