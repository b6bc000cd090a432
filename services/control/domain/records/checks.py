"""Checks of the specification of a record rule that need no call to a cluster."""

from __future__ import annotations

import re
from collections.abc import Collection

from mesh import durations
from mesh.re2_expressions import InvalidRe2Error, compiled
from mesh.record_expressions import InvalidExpressionError, check_expression
from mesh.record_transforms import InvalidTransformError, check_transform
from mesh.routing import InvalidRuleError
from mesh.rpc import record_rules
from mesh.topics import is_topic_name
from services.control.domain.errors import InvalidField
from services.control.domain.records.flows import names_of, targets_of

RULE_ID = re.compile(r"[a-z0-9-]{1,63}")
MAX_BRANCHES = 100
MAX_TRANSFORMS = 100
MAX_OFFSETS = 100_000
SHORTEST_SYNC_MS, LONGEST_SYNC_MS = 100, 86_400_000
OWN_TOPICS = ("__", "mesh.")
"""The beginning of names that Kafka and the mesh keep for themselves; no rule may copy positions over positions."""


def normalised(spec: record_rules.RecordRuleSpec) -> record_rules.RecordRuleSpec:
    """The rule with its defaults, so that the log holds the whole decision: it begins at the first record."""
    said = record_rules.RecordRuleSpec()
    said.CopyFrom(spec)
    if said.start.WhichOneof("kind") is None:
        said.start.earliest = True
    return said


def check_spec(spec: record_rules.RecordRuleSpec, clusters: Collection[str]) -> None:
    """Refuses a wrong rule; errors name the fields as in a request."""
    if not RULE_ID.fullmatch(spec.record_rule_id):
        text = f"{spec.record_rule_id!r} is not 1 to 63 characters of a-z, 0-9, '-'"
        raise InvalidField("record_rule.record_rule_id", text)
    match spec.WhichOneof("kind"):
        case "mirror":
            _check_mirror(spec.mirror, clusters)
        case "content":
            _check_content(spec.content, clusters)
        case _:
            raise InvalidField("record_rule", "say what it is: one of mirror and content")
    check_start("record_rule.start", spec.start, spec)


def check_start(field: str, start: record_rules.StartAt, spec: record_rules.RecordRuleSpec) -> None:
    """Refuses a place to begin that is empty, or names a topic that the rule does not read."""
    match start.WhichOneof("kind"):
        case "earliest" | "latest" as kind:
            if not getattr(start, kind):
                raise InvalidField(f"{field}.{kind}", "is false, which says nothing; set it, or another one")
        case "time":
            if start.time.ToMilliseconds() < 0:
                raise InvalidField(f"{field}.time", "is before 1970; records have no such time")
        case "offsets":
            _check_offsets(f"{field}.offsets", start.offsets, spec)
        case _:
            raise InvalidField(field, "say where to begin: one of earliest, latest, time and offsets")


def reads(spec: record_rules.RecordRuleSpec, topic: str) -> bool:
    """Whether the rule reads a topic of this name on its source cluster."""
    return names_of(spec).take(topic) and not topic.startswith(OWN_TOPICS)


def _check_mirror(mirror: record_rules.MirrorSpec, clusters: Collection[str]) -> None:
    field = "record_rule.mirror"
    check_cluster(f"{field}.source_cluster", mirror.source_cluster, clusters)
    check_cluster(f"{field}.target_cluster", mirror.target_cluster, clusters)
    match mirror.WhichOneof("topics"):
        case "topic":
            _check_source_topic(f"{field}.topic", mirror.topic)
        case "topic_prefix":
            if mirror.topic_prefix and not is_topic_name(mirror.topic_prefix.rstrip(".") + "x"):
                text = f"{mirror.topic_prefix!r} begins no topic name (a-z, A-Z, 0-9, '.', '_', '-'; at most 249)"
                raise InvalidField(f"{field}.topic_prefix", text)
        case _:
            raise InvalidField(field, "say which topics: one of topic and topic_prefix")
    try:
        names_of(record_rules.RecordRuleSpec(mirror=mirror))
    except InvalidRuleError as error:
        raise InvalidField(f"{field}.target_topic", str(error)) from None
    if mirror.filter:
        check_condition(f"{field}.filter", mirror.filter)
    check_transforms(f"{field}.transforms", mirror.transforms)
    if mirror.HasField("group_offsets"):
        _check_group_offsets(f"{field}.group_offsets", mirror.group_offsets)


def _check_content(content: record_rules.ContentRuleSpec, clusters: Collection[str]) -> None:
    field = "record_rule.content"
    check_cluster(f"{field}.source_cluster", content.source_cluster, clusters)
    _check_source_topic(f"{field}.topic", content.topic)
    if not 1 <= len(content.branches) <= MAX_BRANCHES:
        raise InvalidField(f"{field}.branches", f"needs 1 to {MAX_BRANCHES}, got {len(content.branches)}")
    for number, branch in enumerate(content.branches):
        where = f"{field}.branches[{number}].when"
        if not branch.when:
            raise InvalidField(where, "is empty; a branch for what no other takes is `otherwise`")
        check_condition(where, branch.when, content.value_format)
    for where, target in targets_of(content):
        if target.cluster:
            check_cluster(f"{where}.cluster", target.cluster, clusters)
        if not is_topic_name(target.topic) or target.topic.startswith(OWN_TOPICS):
            raise InvalidField(f"{where}.topic", f"{target.topic!r} is no topic to write to; name one that exists")
    check_transforms(f"{field}.transforms", content.transforms, content.value_format)


def check_cluster(field: str, name: str, clusters: Collection[str]) -> None:
    if not name:
        raise InvalidField(field, "is required")
    if name not in clusters:
        raise InvalidField(field, f"cluster {name!r} is not registered (known: {', '.join(clusters) or 'none'})")


def _check_source_topic(field: str, topic: str) -> None:
    if not is_topic_name(topic):
        raise InvalidField(field, f"{topic!r} is no topic name (1 to 249 of a-z, A-Z, 0-9, '.', '_', '-')")
    if topic.startswith(OWN_TOPICS):
        raise InvalidField(field, f"{topic!r} is kept by Kafka or by the mesh for itself; it stays where it is")


def check_condition(
    field: str,
    expression: str,
    value_format: record_rules.ValueFormat.ValueType = record_rules.VALUE_FORMAT_UNSPECIFIED,
) -> None:
    try:
        check_expression(expression, value_format)
    except InvalidExpressionError as error:
        raise InvalidField(field, str(error)) from None


def check_transforms(
    field: str,
    transforms: Collection[record_rules.Transform],
    value_format: record_rules.ValueFormat.ValueType = record_rules.VALUE_FORMAT_UNSPECIFIED,
) -> None:
    if len(transforms) > MAX_TRANSFORMS:
        raise InvalidField(field, f"{len(transforms)} are more than {MAX_TRANSFORMS}")
    for number, transform in enumerate(transforms):
        try:
            check_transform(transform, value_format)
        except InvalidTransformError as error:
            where = f"{field}[{number}]" + (f".{error.field}" if error.field else "")
            raise InvalidField(where, error.reason) from None


def _check_group_offsets(field: str, wanted: record_rules.GroupOffsets) -> None:
    try:
        compiled(wanted.group_regex)
    except InvalidRe2Error as error:
        raise InvalidField(f"{field}.group_regex", str(error)) from None
    interval = durations.whole_ms(wanted.sync_interval)
    if interval and not SHORTEST_SYNC_MS <= interval <= LONGEST_SYNC_MS:
        text = f"{interval} ms is not between {SHORTEST_SYNC_MS} ms and {LONGEST_SYNC_MS} ms; 0 means 10 s"
        raise InvalidField(f"{field}.sync_interval", text)


def _check_offsets(field: str, wanted: record_rules.PartitionOffsets, spec: record_rules.RecordRuleSpec) -> None:
    if not reads(spec, wanted.topic):
        raise InvalidField(f"{field}.topic", f"{wanted.topic!r} is no topic that the rule reads")
    if not 1 <= len(wanted.offsets) <= MAX_OFFSETS:
        raise InvalidField(f"{field}.offsets", f"needs 1 to {MAX_OFFSETS} partitions, got {len(wanted.offsets)}")
    for partition, offset in wanted.offsets.items():
        if partition < 0 or offset < 0:
            raise InvalidField(f"{field}.offsets[{partition}]", f"{offset}: neither can be negative")
