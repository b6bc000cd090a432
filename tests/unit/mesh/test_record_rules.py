"""How record rules follow from the log."""

from __future__ import annotations

from google.protobuf.message import Message

from mesh.record_rules import MOST_SYNCS, RecordRules, fold_record_rules
from mesh.rpc import events, record_rules

EARLIEST = record_rules.StartAt(earliest=True)


def offsets(topic: str, **at: int) -> record_rules.StartAt:
    """`offsets("apples", p0=5)`."""
    by_number = {int(name.removeprefix("p")): offset for name, offset in at.items()}
    return record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic=topic, offsets=by_number))


def mirror(rule_id: str, topic: str = "apples") -> record_rules.RecordRuleSpec:
    spec = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=topic)
    return record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=spec, start=EARLIEST)


def folded(*payloads: Message) -> RecordRules:
    """The rules after these events at positions 1, 2, 3, ..."""
    payload_fields = events.Event.DESCRIPTOR.oneofs[0].fields
    fields = {each.message_type.full_name: each.name for each in payload_fields if each.message_type}
    rules: RecordRules = {}
    for position, payload in enumerate(payloads, 1):
        event = events.Event(position=position, actor=f"actor {position}")
        getattr(event, fields[payload.DESCRIPTOR.full_name]).CopyFrom(payload)
        rules = fold_record_rules(rules, event)
    return rules


CREATED = events.RecordRuleCreated(rule=mirror("m"))


def test_a_rule_runs_from_its_creation_and_stops_and_goes_on() -> None:
    assert not folded(CREATED)["m"].paused
    paused = folded(CREATED, events.RecordRulePaused(record_rule_id="m"))["m"]
    assert (paused.paused, paused.created, paused.revision, paused.actor) == (True, 1, 2, "actor 2")
    assert not folded(
        CREATED, events.RecordRulePaused(record_rule_id="m"), events.RecordRuleResumed(record_rule_id="m")
    )["m"].paused


def test_an_update_keeps_what_is_still_to_be_done() -> None:
    rewound = events.RecordRuleRewound(record_rule_id="m", start=EARLIEST)
    rule = folded(CREATED, rewound, events.RecordRuleUpdated(rule=mirror("m", "pears")))["m"]
    assert rule.spec.mirror.topic == "pears"
    assert [rewind.revision for rewind in rule.rewinds] == [2]


def test_a_rule_that_is_created_again_is_another_one() -> None:
    removed = events.RecordRuleRemoved(record_rule_id="m")
    assert folded(CREATED, removed) == {}
    assert folded(CREATED, removed, CREATED)["m"].created == 3


def test_other_events_leave_the_very_same_rules() -> None:
    rules = folded(CREATED)
    assert fold_record_rules(rules, events.Event(position=2, mesh_frozen=events.MeshFrozen())) is rules


def test_a_rewind_of_everything_ends_those_before() -> None:
    def rewound(start: record_rules.StartAt) -> events.RecordRuleRewound:
        return events.RecordRuleRewound(record_rule_id="m", start=start)

    rule = folded(CREATED, rewound(offsets("apples", p0=5)), rewound(EARLIEST))["m"]
    assert [rewind.revision for rewind in rule.rewinds] == [3]


def test_a_rewind_to_offsets_ends_those_it_covers_and_no_other() -> None:
    def rewound(start: record_rules.StartAt) -> events.RecordRuleRewound:
        return events.RecordRuleRewound(record_rule_id="m", start=start)

    rule = folded(
        CREATED,
        rewound(EARLIEST),
        rewound(offsets("apples", p0=5)),
        rewound(offsets("pears", p0=1)),
        rewound(offsets("apples", p0=7, p1=2)),
    )["m"]
    assert [rewind.revision for rewind in rule.rewinds] == [2, 4, 5]


def test_an_order_to_translate_includes_those_that_asked_for_less() -> None:
    def ordered(*groups: str) -> events.GroupOffsetsSyncOrdered:
        return events.GroupOffsetsSyncOrdered(record_rule_id="m", groups=groups)

    rule = folded(CREATED, ordered("a"), ordered("b"), ordered("a", "c"))["m"]
    assert [sync.revision for sync in rule.group_syncs] == [3, 4]
    assert [sync.revision for sync in folded(CREATED, ordered("a"), ordered())["m"].group_syncs] == [3]
    many = folded(CREATED, *(ordered(f"g{number}") for number in range(MOST_SYNCS + 5)))["m"]
    assert len(many.group_syncs) == MOST_SYNCS
