"""How mirrors and content rules are written on a command line, and how they read in a table. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mesh import durations
from mesh.rpc import events, record_rules
from mesh.wording import word

TRANSFORMS = ("set-header:NAME=VALUE", "drop-header:NAME", "redact:PATH")
STARTS = "earliest, latest, a time (2026-11-21T20:00:00Z), or TOPIC:0=500,1=480 (partitions and offsets)"
VALUE_FORMATS = {
    "json": record_rules.VALUE_FORMAT_JSON,
    "bytes": record_rules.VALUE_FORMAT_BYTES,
    "avro": record_rules.VALUE_FORMAT_AVRO,
}


def start_at(text: str) -> record_rules.StartAt:
    """A place to begin. The message of a ValueError names the right form."""
    match text:
        case "earliest":
            return record_rules.StartAt(earliest=True)
        case "latest":
            return record_rules.StartAt(latest=True)
    topic, separator, offsets = text.rpartition(":")
    if separator and topic and "=" in offsets:
        return record_rules.StartAt(offsets=_offsets(text, topic, offsets))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r}: expected {STARTS}") from None
    start = record_rules.StartAt()
    start.time.FromDatetime((moment if moment.tzinfo else moment.astimezone()).astimezone(UTC))
    return start


def _offsets(text: str, topic: str, offsets: str) -> record_rules.PartitionOffsets:
    found: dict[int, int] = {}
    for each in offsets.split(","):
        partition, separator, offset = each.partition("=")
        if not separator or not partition.strip().isdecimal() or not offset.strip().isdecimal():
            raise ValueError(f"{text!r}: {each!r} is no partition with its offset, like 0=500")
        found[int(partition)] = int(offset)
    return record_rules.PartitionOffsets(topic=topic, offsets=found)


def transform(text: str) -> record_rules.Transform:
    """A change of records. The message of a ValueError names the right form."""
    kind, separator, rest = text.partition(":")
    if separator:
        match kind:
            case "set-header" if "=" in rest:
                name, _, value = rest.partition("=")
                return record_rules.Transform(set_header=record_rules.HeaderValue(name=name, value=value))
            case "drop-header":
                return record_rules.Transform(drop_header=rest)
            case "redact":
                return record_rules.Transform(redact_json_field=rest)
    raise ValueError(f"{text!r}: expected {', '.join(TRANSFORMS)}")


def target(text: str) -> record_rules.RecordTarget:
    """ "TOPIC", or "CLUSTER/TOPIC"."""
    cluster, _, topic = text.rpartition("/")
    return record_rules.RecordTarget(cluster=cluster, topic=topic)


def kind(rule: record_rules.RecordRule) -> str:
    """ "mirror" or "content"."""
    return rule.spec.WhichOneof("kind") or ""


def sentence(spec: record_rules.RecordRuleSpec) -> str:
    """ "c1/orders -> c2/copy-of-orders", "c1/orders by content -> de, c2/fr"."""
    if spec.WhichOneof("kind") == "mirror":
        mirror = spec.mirror
        topics = mirror.topic or f"{mirror.topic_prefix}*"
        name = mirror.target_topic or topics
        how = f" where {mirror.filter}" if mirror.filter else ""
        return f"{mirror.source_cluster}/{topics} -> {mirror.target_cluster}/{name}{how}"
    content = spec.content
    targets = ", ".join(dict.fromkeys(_target_text(branch.target) for branch in content.branches))
    return f"{content.source_cluster}/{content.topic} by content -> {targets}"


def start_text(start: record_rules.StartAt) -> str:
    """ "the first record", "2026-11-21 20:00:00 UTC", "orders from 0=500, 1=480"."""
    match start.WhichOneof("kind"):
        case "earliest":
            return "the first record"
        case "latest":
            return "the end"
        case "time":
            return start.time.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        case "offsets":
            at = ", ".join(f"{number}={offset}" for number, offset in sorted(start.offsets.offsets.items()))
            return f"{start.offsets.topic} from {at}"
        case _:
            return "nowhere"


def state(rule: record_rules.RecordRule) -> str:
    return word(record_rules.RecordRuleState, rule.state)


def details(spec: record_rules.RecordRuleSpec) -> Iterable[tuple[str, str]]:
    """Further properties of a rule, as names and texts."""
    of = spec.mirror if spec.WhichOneof("kind") == "mirror" else spec.content
    yield "begins at", start_text(spec.start)
    if spec.WhichOneof("kind") == "content":
        for branch in spec.content.branches:
            yield f"to {_target_text(branch.target)}", f"when {branch.when}"
        otherwise = spec.content.otherwise if spec.content.HasField("otherwise") else None
        yield "otherwise", f"to {_target_text(otherwise)}" if otherwise else "to the dead letters"
        dead = spec.content.dead_letters if spec.content.HasField("dead_letters") else None
        yield "dead letters", f"to {_target_text(dead) if dead else spec.content.topic + '.dlq'}"
    else:
        groups = spec.mirror.group_offsets
        if groups.continuous:
            every = (durations.whole_ms(groups.sync_interval) or 10_000) / 1000
            yield "groups", f"{groups.group_regex or 'all'}, translated every {every:g} s"
        if spec.mirror.HasField("keep_topics_in_step") and not spec.mirror.keep_topics_in_step:
            yield "topics", "are not kept in step"
    for each in of.transforms:
        yield "changes", transform_text(each)


def event(of: events.Event) -> str:
    """The decision about a record rule, as a sentence; empty for events about something else."""
    match of.WhichOneof("payload"):
        case "record_rule_created":
            created = of.record_rule_created.rule
            return f"record rule {created.record_rule_id} created: {sentence(created)}"
        case "record_rule_updated":
            updated = of.record_rule_updated.rule
            return f"record rule {updated.record_rule_id} is now: {sentence(updated)}"
        case "record_rule_paused":
            return f"record rule {of.record_rule_paused.record_rule_id} paused"
        case "record_rule_resumed":
            return f"record rule {of.record_rule_resumed.record_rule_id} resumed"
        case "record_rule_rewound":
            rewound = of.record_rule_rewound
            return f"record rule {rewound.record_rule_id} begins again at {start_text(rewound.start)}"
        case "record_rule_removed":
            return f"record rule {of.record_rule_removed.record_rule_id} removed"
        case "group_offsets_sync_ordered":
            order = of.group_offsets_sync_ordered
            groups = ", ".join(order.groups) or "all groups"
            return f"offsets of {groups} are to be translated by record rule {order.record_rule_id}"
        case _:
            return ""


def transform_text(of: record_rules.Transform) -> str:
    match of.WhichOneof("kind"):
        case "set_header":
            return f"header {of.set_header.name} = {of.set_header.value}"
        case "drop_header":
            return f"header {of.drop_header} dropped"
        case _:
            return f"JSON field {of.redact_json_field} redacted"


def _target_text(of: record_rules.RecordTarget) -> str:
    return f"{of.cluster}/{of.topic}" if of.cluster else of.topic


@dataclass(slots=True)
class Rates:
    """Records a second of each rule, from one refresh to the next."""

    clock: Callable[[], float]
    _before: dict[str, tuple[float, int]] = field(default_factory=dict)

    def of(self, rule: record_rules.RecordRule) -> float | None:
        """None at the first refresh, and when the router that runs the rule has restarted its counter."""
        progress = rule.progress
        records = progress.records_written + progress.records_filtered + progress.records_dead
        now = self.clock()
        before = self._before.get(rule.name)
        self._before[rule.name] = (now, records)
        if before is None or records < before[1] or now <= before[0]:
            return None
        return (records - before[1]) / (now - before[0])
