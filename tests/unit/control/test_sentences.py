"""What was decided, in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import Message

from mesh.routing import ForwardingRule, NodeView
from mesh.routing.codec import rule_to_proto
from mesh.rpc import admin, events, record_rules, routing
from services.control.presentation.sentences import MOST_SENTENCES, Known, sentences
from services.control.store.drafts import PAYLOADS
from services.control.store.reports import FIELDS
from tests.unit.control.worlds import rule


def told(payload: Message, known: Known | None = None) -> list[str]:
    return sentences(event(payload), known or Known())


def event(payload: Message) -> events.Event:
    made = events.Event(position=9)
    getattr(made, {**PAYLOADS, **FIELDS}[type(payload)]).CopyFrom(payload)
    return made


def changed(*changes: events.RuleChange, **fields: object) -> events.RuleSetChanged:
    return events.RuleSetChanged(changes=changes, **fields)  # type: ignore[arg-type]  # whatever a test says


def updated(after: ForwardingRule, before: ForwardingRule) -> list[str]:
    change = events.RuleChange(updated=rule_to_proto(after))
    return told(changed(change), Known(rules={before.rule_id: before}))


@pytest.mark.parametrize(
    ("after", "before", "says"),
    [
        ("orders->c2", "orders->c1", "rule r: target_cluster c1 -> c2"),
        ("ap*->c1", "apples->c1", "rule r: match topic apples -> topic prefix ap"),
        ("orders->c1:shop.{topic}", "orders->c1", "rule r: upstream_topic the same name -> shop.{topic}"),
        ("ap*->c1", "apples->c2", "rule r: match topic apples -> topic prefix ap, target_cluster c2 -> c1"),
    ],
)
def test_each_field_that_changed_is_told(after: str, before: str, says: str) -> None:
    assert updated(rule(after, "r"), rule(before, "r")) == [says]


def test_groups_and_clients_have_fields_of_their_own() -> None:
    shadows = updated(rule("group:shop->c1", "r", shadow_topics=True), rule("group:shop->c1", "r"))
    single, each = NodeView.SINGLE, NodeView.PER_CLUSTER
    nodes = updated(rule("client:kafkajs/*->", "r", node_view=each), rule("client:kafkajs/*->", "r", node_view=single))
    assert (shadows, nodes) == (["rule r: shadow_topics no -> yes"], ["rule r: nodes single -> per cluster"])


def test_rules_come_and_go_with_what_they_say() -> None:
    known = Known(rules={"old": rule("ap*->c1:x.{topic}", "old")})
    created = events.RuleChange(created=rule_to_proto(rule("group:shop->c2", "new", shadow_topics=True)))
    assert told(changed(events.RuleChange(removed="old"), created), known) == [
        "rule old removed: topic prefix ap -> c1 as x.{topic}",
        "rule new added: group shop -> c2 with shadow topics",
    ]


def test_a_move_is_told_by_places_and_new_ranks_alone_are_none() -> None:
    known = Known(order_before=("a", "b", "c"), order_after=("a", "c", "b"))
    moves = [events.RuleChange(moved=each, rank=1.0) for each in ("a", "c")]
    assert told(changed(*moves), known) == ["rule c: place 3 -> 2"]
    assert told(changed(moves[1])) == ["rule c moved"]


def test_how_a_change_was_made_is_told_with_it() -> None:
    canary = events.Canary(members=["g1"], permille=25)
    made = changed(events.RuleChange(removed="a"), reverted_to=7, without_members=["g2"], canary=canary)
    assert told(made) == [
        "the rules of revision 7 are back",
        "rule a removed",
        "without g2, by the operator's wish",
        "tried first by 2.5 % of the connections of g1",
    ]


def test_a_cluster_is_told_by_what_differs() -> None:
    def cluster(address: str, **config: str) -> routing.UpstreamCluster:
        spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=[address], producer_config=config)
        return routing.UpstreamCluster(spec=spec, ordinal=1)

    before = event(events.ClusterRegistered(cluster=cluster("a:1", acks="1")))
    after = events.ClusterUpdated(cluster=cluster("b:1", acks="all", retries="3"))
    assert told(after, Known(earlier=before)) == [
        "cluster c1: bootstrap_servers a:1 -> b:1, producer_config[acks] 1 -> all, producer_config[retries] unset -> 3"
    ]


def test_a_record_rule_is_told_by_what_differs() -> None:
    def mirror(topic: str, paths: list[str]) -> record_rules.RecordRuleSpec:
        transforms = [record_rules.Transform(redact_json_field=path) for path in paths]
        spec = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=topic, transforms=transforms)
        return record_rules.RecordRuleSpec(record_rule_id="m", mirror=spec)

    before = event(events.RecordRuleCreated(rule=mirror("orders", [])))
    assert sentences(before, Known()) == ["record rule m created: mirror of topic orders from c1 to c2"]
    after = events.RecordRuleUpdated(rule=mirror("orders-2", ["$.card"]))
    assert told(after, Known(earlier=before)) == [
        'record rule m: mirror.topic orders -> orders-2, mirror.transforms none -> redact_json_field: "$.card"'
    ]


def order(target: str = "instances/billing.one", **command: Any) -> events.SidecarOrdered:
    said = events.SidecarCommand(**command)
    return events.SidecarOrdered(order=events.SidecarOrder(name="orders/3f9a", target=target, command=said))


@pytest.mark.parametrize(
    ("ordered", "says"),
    [
        (order(pause={}), "consumer billing.one is to pause"),
        (order(resume={}), "consumer billing.one is to resume"),
        (
            order(drain={"timeout": timedelta(seconds=2.5)}),
            "consumer billing.one is to drain within 2.5 s",
        ),
        (
            order(
                configure={
                    "topics": ["a", "b"],
                    "delivery": {"linger_ms": 5, "routes": [{"when": "true", "path": "/x"}]},
                    "delivery_mask": {"paths": ["linger_ms", "order_by_key", "routes"]},
                }
            ),
            "consumer billing.one is to read a, b, have linger_ms 5, have order_by_key false, have routes true -> /x",
        ),
        (order(remove={}), "consumer billing.one is to be removed"),
        (order(seek={"first": True}), "consumer billing.one is to go on at the first record"),
        (order(seek={"last": True, "topic": "t"}), "consumer billing.one is to go on at the end of t"),
        (
            order(seek={"offset": 5, "topic": "t", "partition": 0}),
            "consumer billing.one is to go on at offset 5 of t/0",
        ),
        (
            order(seek={"time": {"seconds": 1_800_000_000}}),
            "consumer billing.one is to go on at the first record since 2027-01-15 08:00:00 UTC",
        ),
        (order("members/s1", check_health={}), "sidecar s1 is asked for its health"),
        (
            order("members/s1", set_log_levels={"levels": {"mesh": "DEBUG", "ROOT": "INFO"}}),
            "sidecar s1 is to log ROOT at INFO, mesh at DEBUG",
        ),
    ],
)
def test_an_order_is_told_by_what_is_to_be_done(ordered: events.SidecarOrdered, says: str) -> None:
    assert told(ordered) == [f"{says} (order 3f9a)"]


def test_what_became_of_an_order_is_told_about_its_target() -> None:
    outcome = events.OrderOutcome(result=events.ORDER_RESULT_DONE, description="it gives nothing more")
    ended = event(events.SidecarOrderEnded(name="orders/3f9a", sidecar="s1", outcome=outcome))
    ended.stream = "instances/billing.one"
    assert sentences(ended, Known()) == ["consumer billing.one: order 3f9a done by s1: it gives nothing more"]


def test_an_instance_is_told_by_what_it_reads_and_what_operators_did_to_it() -> None:
    places = [events.AssignedPartition(topic="t", partition=number) for number in range(12)]
    by_hand = events.ConsumerInstance(name="instances/g.i", sidecar="s1", assigned_partitions=places)
    matching = events.ConsumerInstance(name="instances/g.i", sidecar="s1", topic_pattern="o.*", paused=True)
    named = ", ".join(f"t/{number}" for number in range(10))
    assert told(events.ConsumerInstanceRegistered(instance=by_hand)) == [
        f"consumer g.i on s1 reads partitions {named} and 2 more"
    ]
    assert told(events.ConsumerInstanceRegistered(instance=matching)) == [
        "consumer g.i on s1 reads topics that match o.*, paused"
    ]


def test_every_kind_of_event_has_its_sentence() -> None:
    for payload in PAYLOADS:
        assert told(payload()) != ["something that this release does not know"], payload.__name__
    assert sentences(events.Event(), Known()) == ["something that this release does not know"]


def test_a_command_to_come_is_told_by_its_name() -> None:
    scheduled = events.ChangeScheduled(name="schedules/x")
    scheduled.time.FromSeconds(1_800_000_000)
    scheduled.command.Pack(admin.SetRuleRequest())
    assert told(scheduled) == ["scheduled as x for 2027-01-15 08:00:00 UTC: SetRule"]


@pytest.mark.parametrize(
    ("outcome", "fields", "says"),
    [
        (events.SCHEDULE_OUTCOME_DONE, {"revision": 12}, "made: revision 12"),
        (events.SCHEDULE_OUTCOME_REFUSED, {"problem": "c9 is not registered"}, "refused: c9 is not registered"),
        (events.SCHEDULE_OUTCOME_CANCELLED, {}, "cancelled"),
    ],
)
def test_what_became_of_it_is_told(
    outcome: events.ScheduleOutcome.ValueType, fields: dict[str, Any], says: str
) -> None:
    ended = events.ScheduledChangeEnded(name="schedules/x", outcome=outcome, **fields)
    assert told(ended) == [f"scheduled change x {says}"]


def test_a_huge_change_is_told_within_bounds() -> None:
    many = changed(*(events.RuleChange(removed=f"r{number}") for number in range(MOST_SENTENCES + 50)))
    assert len(told(many)) == MOST_SENTENCES + 1
    assert told(many)[-1] == "and 50 more changes"
