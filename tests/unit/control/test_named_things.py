"""The clusters, topics and sidecars that a request names, also through the resources that it names."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from mesh.record_rules import RecordRule
from mesh.routing import RoutingState
from mesh.rpc import (
    access,
    admin,
    audit,
    events,
    grants,
    instances,
    profiles,
    record_rules,
    replays,
    routing,
    subscriptions,
    traffic,
)
from services.control.api.named_things import NamedThings
from services.control.domain.replays.replays import Replays
from services.control.domain.sidecars.orders import Orders
from services.control.domain.view import MeshView
from tests.unit.control.worlds import table
from tests.unit.mesh.test_method_access import methods

MIRROR = record_rules.RecordRuleSpec(
    mirror=record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic_prefix="shop.")
)
SEEK = replays.ReplaySpec(
    seek=replays.ReplayBySeek(instance="instances/g.one"), ranges=[replays.ReplayRange(topic="pay")]
)
INSTANCE = events.ConsumerInstance(name="instances/g.one", sidecar="till", topics=["shop.a"])
ORDER = events.SidecarOrder(name="orders/1", target="instances/g.one")


def subscription(name: str, *sidecars: str, **members: Any) -> subscriptions.DeclaredSubscription:
    return subscriptions.DeclaredSubscription(
        name=name, sidecars=sidecars, spec=subscriptions.SubscriptionSpec(**members)
    )


def packed(message: Message) -> AnyMessage:
    made = AnyMessage()
    made.Pack(message)
    return made


SCHEDULED = events.Event(
    change_scheduled=events.ChangeScheduled(command=packed(admin.RemoveRuleRequest(name="rules/r1")))
)


def view() -> MeshView:
    any_rule: Any = RecordRule
    record_rule = any_rule.__new__(any_rule)
    object.__setattr__(record_rule, "spec", MIRROR)
    return MeshView(
        state=RoutingState(table("apples->c1", "ap*->c2:fruit.{topic}", "group:g->c3")),
        record_rules={"m": record_rule},
        replays=Replays(open={"replays/1": replays.Replay(spec=SEEK)}),
        orders=Orders(open={"orders/1": ORDER}),
        schedules={"schedules/1": SCHEDULED},
        subscriptions={"orders": subscription("orders", "till", topics=["pay"])},
    )


def things(request: Message) -> set[str]:
    return {str(each) for each in NamedThings(view(), {"instances/g.one": INSTANCE}).of(request)}


def match(**fields: Any) -> routing.RuleMatch:
    return routing.RuleMatch(**fields)


REQUESTS: list[tuple[Message, set[str]]] = [
    (admin.SetRuleRequest(match=match(topic="pay"), target_cluster="c2"), {"topic pay", "cluster c2"}),
    (
        admin.SetRuleRequest(match=match(topic="apples"), target_cluster="c2"),
        {"topic apples", "cluster c1", "cluster c2"},
    ),
    (admin.SetRuleRequest(match=match(topic="pay"), upstream_topic="x.{topic}"), {"topic pay", "topics x.*"}),
    (admin.SetRuleRequest(match=match(topic="pay"), upstream_topic="{topic}.2"), {"topic pay"}),
    (admin.CreateRuleRequest(rule=routing.RuleSpec(match=match(topic_prefix="s"))), {"topics s*"}),
    (admin.CreateRuleRequest(rule=routing.RuleSpec(match=match(topic_regex="s.*"))), {"topics that no prefix bounds"}),
    (
        admin.CreateRuleRequest(rule=routing.RuleSpec(match=match(unmatched_topics=True), target_cluster="c1")),
        {"topics that no prefix bounds", "cluster c1"},
    ),
    (admin.RemoveRuleRequest(name="rules/r2"), {"topics ap*", "topics fruit.*", "cluster c2"}),
    (admin.RemoveRuleRequest(name="rules/r3"), {"cluster c3"}),
    (admin.RemoveRuleRequest(name="rules/gone"), set()),
    (
        admin.UpdateRuleRequest(name="rules/r1", rule=routing.RuleSpec(target_cluster="c9")),
        {"topic apples", "cluster c1", "cluster c9"},
    ),
    (
        admin.ChangeRulesRequest(edits=[admin.RuleEdit(remove=admin.RemoveRuleRequest(name="rules/r1"))]),
        {"topic apples", "cluster c1"},
    ),
    (
        admin.ReplaceRulesRequest(rules=[routing.RuleSpec(match=match(topic="pay"), target_cluster="c9")]),
        {
            "topic pay",
            "cluster c9",
            "topic apples",
            "cluster c1",
            "topics ap*",
            "topics fruit.*",
            "cluster c2",
            "cluster c3",
        },
    ),
    (
        subscriptions.DeclareSubscriptionRequest(
            subscription=subscription("new", "shop-*", topics=["a"], reply_topics=["b"])
        ),
        {"sidecar shop-*", "topic a", "topic b"},
    ),
    (
        subscriptions.DeclareSubscriptionRequest(subscription=subscription("orders", "shop", topic_pattern="p.*")),
        {"sidecar shop", "topics that no prefix bounds", "sidecar till", "topic pay"},
    ),
    (subscriptions.WithdrawSubscriptionRequest(name="subscriptions/orders"), {"sidecar till", "topic pay"}),
    (subscriptions.RevertSubscriptionsRequest(to_revision=7), set()),
    (admin.RevertRequest(last=True), set()),
    (
        admin.ScheduleChangeRequest(command=packed(admin.RemoveRuleRequest(name="rules/r1"))),
        {"topic apples", "cluster c1"},
    ),
    (admin.CancelScheduledChangeRequest(name="schedules/1"), {"topic apples", "cluster c1"}),
    (admin.GetClusterRequest(name="clusters/c1"), {"cluster c1"}),
    (admin.RegisterClusterRequest(spec=routing.ClusterSpec(cluster_name="c5")), {"cluster c5"}),
    (admin.ExplainRequest(topic="pay"), {"topic pay"}),
    (admin.ListHistoryRequest(name="members/till"), {"sidecar till"}),
    (record_rules.PauseRecordRuleRequest(name="recordrules/m"), {"topics shop.*", "cluster c1", "cluster c2"}),
    (instances.PlaceOrderRequest(target="instances/g.one"), {"topic shop.a", "sidecar till"}),
    (instances.PlaceOrderRequest(target="members/shop"), {"sidecar shop"}),
    (instances.GetOrderRequest(name="orders/1"), {"topic shop.a", "sidecar till"}),
    (replays.CancelReplayRequest(name="replays/1"), {"topic pay", "topic shop.a", "sidecar till"}),
    (profiles.GetTopicProfileRequest(name="topics/pay"), {"topic pay"}),
    (audit.QueryAuditRequest(topic="pay"), {"topic pay"}),
    (audit.ListRefusalsRequest(principal="User:bob", topic_prefix="shop."), {"topics shop.*"}),
    (traffic.TopTalkersRequest(filter=traffic.TrafficFilter(rule="rules/r1")), {"topic apples", "cluster c1"}),
    (admin.FreezeRequest(reason="clusters/c1"), set()),
    (
        grants.GrantRoleRequest(
            grant=grants.Grant(principal="ada", narrowing=grants.Narrowing(clusters=["c1"], topic_prefixes=["shop."]))
        ),
        set(),  # whoever grants roles needs a grant that is not narrowed
    ),
]


@pytest.mark.parametrize(("request_", "named"), REQUESTS, ids=[type(each).__name__ for each, _ in REQUESTS])
def test_a_request_names_these_things(request_: Message, named: set[str]) -> None:
    assert things(request_) == named


NAMING = ("cluster", "topic", "sidecar")
"""Words of fields that surely name something."""
BOUNDLESS = {
    "mesh.v1.Narrowing",  # see the last request above
    "mesh.v1.ExplainAccessRequest",  # a question about rights shows no thing
    "mesh.v1.PartitionProgress", "mesh.v1.InstancePartition", "mesh.v1.TopicApart", "mesh.v1.ConnectedClient",
    "mesh.v1.RehearsalFigures", "mesh.v1.AcknowledgedLog", "mesh.v1.UnreachableCluster",
    "mesh.v1.ReplayPartition", "mesh.v1.TopicProfile", "mesh.v1.ReportOrderRequest",
    "mesh.v1.ReportReplayRequest",  # what members report; members have no grants
    "mesh.v1.GetTransactionRequest", "mesh.v1.FinishTransactionRequest",
    "mesh.v1.AbortTransactionRequest",  # a transactional id has no bounds: only grants for the whole mesh serve
    "mesh.v1.ListClientsRequest",  # the answer names all topics of a client: only grants for the whole mesh serve
}  # fmt: skip


def kinds_of_requests() -> list[Descriptor]:
    from google.protobuf import descriptor_pool

    found: dict[str, Descriptor] = {}

    def add(kind: Descriptor) -> None:
        if kind.full_name not in found and kind.full_name.startswith("mesh.v1."):
            found[kind.full_name] = kind
            for field in kind.fields:
                if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                    add(field.message_type)

    for method in methods():
        add(descriptor_pool.Default().FindMethodByName(method.removeprefix("/").replace("/", ".")).input_type)
    return [found[name] for name in sorted(found.keys() - BOUNDLESS)]


@pytest.mark.parametrize("kind", kinds_of_requests(), ids=lambda kind: kind.name)
def test_no_field_of_a_request_names_a_thing_without_saying_so(kind: Descriptor) -> None:
    silent = [
        field.name
        for field in kind.fields
        if field.type == field.TYPE_STRING
        and (any(word in field.name for word in NAMING) or (kind.name.endswith("Request") and field.name == "name"))
        and not field.GetOptions().Extensions[access.names]
        and not field.GetOptions().Extensions[access.names_caller]
    ]
    assert not silent
