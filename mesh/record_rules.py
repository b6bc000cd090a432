"""How record rules follow from the event log: one pure function from rules and event to rules.

Control shows and checks them, routers run them; both fold them here, so both agree by construction.
An order that is carried out once (a rewind, a translation of groups' offsets) stays with the rule under the position of
its event. The router that carries out the order remembers that position, and so carries out no order twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256

from mesh.rpc import events, record_rules, standbys, topic_moves

MOST_SYNCS = 100
"""Orders of one rule to translate groups' offsets that are kept; each is carried out within seconds."""

STREAM_PREFIX = "recordrules/"
COPY_PREFIX = "move-"
"""A move that copies has its copy as a record rule; the rule is there as long as the move is open."""
STANDBY_PREFIX = "standby-"
"""Each topic of a standby has its copy as a record rule, until the standby ends or fails over."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Begin again at another place."""

    revision: int
    """Position of its event."""
    start: record_rules.StartAt


@dataclass(frozen=True, slots=True)
class GroupSync:
    """Translate the offsets of these groups once; none: of all."""

    revision: int
    """Position of its event."""
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class RecordRule:
    """A record rule as its events made it. Nobody changes the messages in it."""

    spec: record_rules.RecordRuleSpec
    created: int
    """Position of the event that made it; a removed rule of the same id was another rule, with positions of its own."""
    revision: int
    """Position of the last event about it."""
    actor: str
    time: datetime
    paused: bool = False
    rewinds: tuple[Rewind, ...] = ()
    """Those that still decide where something begins, oldest first."""
    group_syncs: tuple[GroupSync, ...] = ()
    """The last orders, oldest first."""

    @property
    def rule_id(self) -> str:
        return self.spec.record_rule_id

    @property
    def is_copy(self) -> bool:
        """Whether a move made the rule; operators see the move instead."""
        return self.spec.HasField("copy")


RecordRules = Mapping[str, RecordRule]


def fold_record_rules(rules: RecordRules, event: events.Event) -> RecordRules:
    """The rules after `event`, by id; the very same mapping when it is about something else."""
    match event.WhichOneof("payload"):
        case "record_rule_created":
            spec = event.record_rule_created.rule
            rule = RecordRule(spec, event.position, event.position, event.actor, event.time.ToDatetime(UTC))
            return {**rules, rule.rule_id: rule}
        case "record_rule_updated":
            spec = event.record_rule_updated.rule
            return _with(rules, replace(rules[spec.record_rule_id], spec=spec), event)
        case "record_rule_paused":
            return _with(rules, replace(rules[event.record_rule_paused.record_rule_id], paused=True), event)
        case "record_rule_resumed":
            return _with(rules, replace(rules[event.record_rule_resumed.record_rule_id], paused=False), event)
        case "record_rule_rewound":
            rule = rules[event.record_rule_rewound.record_rule_id]
            rewind = Rewind(event.position, event.record_rule_rewound.start)
            return _with(rules, replace(rule, rewinds=_with_rewind(rule.rewinds, rewind)), event)
        case "record_rule_removed":
            return {key: rule for key, rule in rules.items() if key != event.record_rule_removed.record_rule_id}
        case "topic_move_started":
            move = event.topic_move_started.move
            if (
                move.state != topic_moves.TOPIC_MOVE_STATE_COPYING
            ):  # its records stay where they are, at first or for good
                return rules
            return _with_copy(rules, move.name, move.copy, event)
        case "topic_move_stitched":
            return _with_copy(rules, event.topic_move_stitched.name, event.topic_move_stitched.copy, event)
        case "topic_move_ended":
            return {key: rule for key, rule in rules.items() if key != copy_of(event.topic_move_ended.name)}
        case "standby_topics_set":
            return _with_standby(rules, event)
        case "standby_ended":
            return _without_standby(rules, event.standby_ended.name)
        case "fail_over_begun":
            return _without_standby(rules, event.fail_over_begun.name)
        case "group_offsets_sync_ordered":
            order = event.group_offsets_sync_ordered
            rule = rules[order.record_rule_id]
            sync = GroupSync(event.position, frozenset(order.groups))
            return _with(rules, replace(rule, group_syncs=_with_sync(rule.group_syncs, sync)), event)
        case _:
            return rules


def _with_copy(rules: RecordRules, move: str, copy: record_rules.CopySpec, event: events.Event) -> RecordRules:
    spec = record_rules.RecordRuleSpec(record_rule_id=copy_of(move), copy=copy)
    rule = RecordRule(spec, event.position, event.position, event.actor, event.time.ToDatetime(UTC))
    return {**rules, rule.rule_id: rule}


def copy_of(move: str) -> str:
    """The id of the record rule that copies for a move (topicmoves/{id})."""
    return f"{COPY_PREFIX}{move.rpartition('/')[2]}"


def standby_copy_of(standby: str, topic: str) -> str:
    """The id of the record rule that copies a topic for a standby (standbys/{cluster_name}). Names may be long."""
    return f"{_of_standby(standby)}{sha256(topic.encode()).hexdigest()[:16]}"


def _of_standby(standby: str) -> str:
    return f"{STANDBY_PREFIX}{sha256(standby.encode()).hexdigest()[:8]}-"


def _with_standby(rules: RecordRules, event: events.Event) -> RecordRules:
    after = dict(rules)
    for each in event.standby_topics_set.topics:
        rule_id = standby_copy_of(event.standby_topics_set.name, each.topic)
        if not _is_copied(each):
            after.pop(rule_id, None)
        elif rule_id not in after:
            spec = record_rules.RecordRuleSpec(record_rule_id=rule_id, copy=each.copy)
            after[rule_id] = RecordRule(spec, event.position, event.position, event.actor, event.time.ToDatetime(UTC))
    return after


def _is_copied(topic: standbys.StandbyTopic) -> bool:
    """Partitions are in the event only when the copy has ended."""
    return not topic.left and not topic.partitions


def _without_standby(rules: RecordRules, standby: str) -> RecordRules:
    return {key: rule for key, rule in rules.items() if not key.startswith(_of_standby(standby))}


def _with(rules: RecordRules, rule: RecordRule, event: events.Event) -> RecordRules:
    changed = replace(rule, revision=event.position, actor=event.actor, time=event.time.ToDatetime(UTC))
    return {**rules, rule.rule_id: changed}


def _with_rewind(known: tuple[Rewind, ...], new: Rewind) -> tuple[Rewind, ...]:
    """A rewind of everything ends those before; one to offsets ends those to offsets of the same partitions."""
    if new.start.WhichOneof("kind") != "offsets":
        return (new,)
    return (*(each for each in known if not _covers(new.start.offsets, each.start)), new)


def _covers(offsets: record_rules.PartitionOffsets, earlier: record_rules.StartAt) -> bool:
    if earlier.WhichOneof("kind") != "offsets" or earlier.offsets.topic != offsets.topic:
        return False
    return set(earlier.offsets.offsets) <= set(offsets.offsets)


def _with_sync(known: tuple[GroupSync, ...], new: GroupSync) -> tuple[GroupSync, ...]:
    """An order for all groups, or for these and more, includes those before."""
    left = [each for each in known if new.groups and not (each.groups and each.groups <= new.groups)]
    return (*left, new)[-MOST_SYNCS:]
