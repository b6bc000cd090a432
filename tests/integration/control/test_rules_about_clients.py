"""Rules about some clients, the default cluster, and expressions that cover rules, on real clusters."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import psycopg

from mesh.rpc import admin, discovery, routing
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, create_topic, refused, until

SHOPS = routing.ClientMatch(client_id_prefix="shop-", source_networks=["10.1.2.0/24", "10.0.0.0/8"])
"""One network lies in the other."""
KEPT = routing.ClientMatch(client_id_prefix="shop-", source_networks=["10.0.0.0/8"])


async def explained(mesh: World, topic: str, **client: str) -> admin.ExplainResponse:
    request = admin.ExplainRequest(topic=topic, client=admin.ClientIdentity(**client))
    return await mesh.decisions.Explain(request, timeout=CALL)


async def test_a_topic_moves_for_some_clients_and_says_for_whom(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, topic, 2)
    await mesh_of_two.set(topic, "c1")
    match = routing.RuleMatch(topic=topic, client=SHOPS)
    create = admin.CreateRuleRequest(
        rule=routing.RuleSpec(match=match, target_cluster="c2"),
        place=admin.RulePlace(first=True),
        options=admin.ChangeOptions(validate_only=True),
    )
    dry = await mesh_of_two.rules.CreateRule(create, timeout=CALL)
    create.options.validate_only = False
    moved = await mesh_of_two.rules.CreateRule(create, timeout=CALL)
    assert [(each.topic, each.to_cluster, each.client) for each in dry.moves] == [(topic, "c2", KEPT)]
    assert list(moved.moves) == list(dry.moves)
    again = await mesh_of_two.set_rule({"topic": topic, "client": KEPT}, {"target_cluster": "c2"})
    assert (again.revision, list(again.moves)) == (moved.revision, [])

    stranger = await explained(mesh_of_two, topic)
    shop = await explained(mesh_of_two, topic, client_id="shop-7", address="10.2.3.4")
    abroad = await explained(mesh_of_two, topic, client_id="shop-7", address="11.2.3.4")
    assert [answer.cluster for answer in (stranger, shop, abroad)] == ["c1", "c2", "c1"]
    assert [len(answer.tried) for answer in (stranger, shop, abroad)] == [2, 1, 2]
    assert stranger.tried[0].reason == (
        "is only for clients whose client id begins with 'shop-'; this one has no client id that was said"
    )
    assert abroad.tried[0].reason == "is only for clients from 10.0.0.0/8; this one comes from 11.2.3.4"
    assert (shop.visit, shop.partitions) == (1, 2)

    back = await mesh_of_two.rules.RemoveRule(
        admin.RemoveRuleRequest(name=f"rules/{moved.rules[0].spec.rule_id}"), timeout=CALL
    )
    assert [(each.from_cluster, each.to_cluster, each.client) for each in back.moves] == [("c2", "c1", KEPT)]


async def test_what_a_target_lacks_is_told_with_the_clients_who_would_miss_it(
    mesh_of_two: World, kafka_c1: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 2)
    await mesh_of_two.set_rule({"topic": topic, "client": KEPT}, {"target_cluster": "c1"})
    await refused(
        mesh_of_two.set_rule({"topic": topic, "client": KEPT}, {"target_cluster": "c2"}),
        grpc.StatusCode.FAILED_PRECONDITION,
        "does not exist on 'c2', for clients with client id prefix shop-, from 10.0.0.0/8",
    )


async def test_one_match_for_several_kinds_of_clients_is_kept_in_sql(mesh_of_two: World, database: str) -> None:
    for client in (routing.ClientMatch(client_id="a"), KEPT, None):
        await mesh_of_two.set_rule({"group": "billing", "client": client}, {"target_cluster": "c1"})
    await mesh_of_two.set_rule(
        {"unmatched_topics": True, "client": KEPT}, {"target_cluster": "c2", "upstream_topic": "control-none.{topic}"}
    )
    with psycopg.connect(database) as connection:
        rows = connection.execute("select rule_id, match_kind, clients from forwarding_rules order by rank").fetchall()
    assert rows == [
        ("billing-group", "group", {"client_id": "a"}),
        ("billing-group-2", "group", {"client_id_prefix": "shop-", "source_networks": ["10.0.0.0/8"]}),
        ("billing-group-3", "group", {}),
        ("default", "unmatched_topics", {"client_id_prefix": "shop-", "source_networks": ["10.0.0.0/8"]}),
    ]


async def test_what_is_wrong_with_a_condition_is_refused_by_its_field(mesh_of_two: World) -> None:
    for client, text in (
        (routing.ClientMatch(), "rule.match.client: says nothing"),
        (routing.ClientMatch(source_networks=["10.0.0.1/8"]), "rule.match.client.source_networks: '10.0.0.1/8'"),
        (routing.ClientMatch(principal="alice"), "rule.match.client.principal: 'alice' is no principal"),
    ):
        await refused(
            mesh_of_two.set_rule({"topic": "t", "client": client}, {"target_cluster": "c1"}),
            grpc.StatusCode.INVALID_ARGUMENT,
            text,
        )
    await refused(
        mesh_of_two.set_rule({"client_software": "x/1", "client": KEPT}, {"node_view": routing.NODE_VIEW_SINGLE}),
        grpc.StatusCode.INVALID_ARGUMENT,
        "client_software 'x/1'",
    )


async def test_the_default_cluster_is_tried_last_and_leaves_topics_to_rules(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    """The names there have a prefix of this test's own: the clusters are shared with other tests."""
    run = unique_name("control")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, f"{run}.apples", 1)
    names = {"upstream_topic": f"{run}.{{topic}}"}
    await mesh_of_two.set_rule({"unmatched_topics": True}, {"target_cluster": "c1", **names})
    assert (await mesh_of_two.explain("apples")).cluster == "c1"
    taken = await mesh_of_two.set_rule({"topic": "apples"}, {"target_cluster": "c2", **names})
    assert [(each.topic, each.to_cluster) for each in taken.moves] == [("apples", "c2")]
    listed = await mesh_of_two.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)
    assert [rule.spec.rule_id for rule in listed.rules] == ["apples", "default"]
    left = await mesh_of_two.explain("pears")
    assert [tried.reason for tried in left.tried] == ["the topic is not 'apples'", "no other rule matches the topic"]
    await mesh_of_two.rules.RemoveRule(admin.RemoveRuleRequest(name="rules/default"), timeout=CALL)
    assert "no rule matches: clients are told" in (await mesh_of_two.explain("pears")).notes[0]


async def test_an_expression_that_takes_all_topics_of_a_rule_behind_it_is_warned_of(
    mesh_of_two: World, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    run = unique_name("control")
    create_topic(kafka_c1.bootstrap, f"{run}-orders-eu", 1)
    await mesh_of_two.set_rule({"topic_regex": f"{run}-.*-eu"}, {"target_cluster": "c1"})
    behind = routing.RuleSpec(rule_id="behind", match=routing.RuleMatch(topic_prefix=f"{run}-or"), target_cluster="c1")
    edits = [admin.RuleEdit(create=admin.CreateRuleRequest(rule=behind))]
    dry = await mesh_of_two.rules.DryRun(admin.DryRunRequest(edits=edits), timeout=CALL)
    assert [each.subject for each in dry.findings if each.kind == admin.FINDING_KIND_REGEX_COVERS] == ["behind"]
    await mesh_of_two.register("down", "127.0.0.1:1", allow_unreachable=True)
    warned = await mesh_of_two.set_rule({"topic_prefix": f"{run}-orders"}, {"target_cluster": "c1"})
    [warning] = warned.warnings
    assert f"takes the only topic that it matches ({run}-orders-eu)" in warning
    harmless = await mesh_of_two.set_rule({"topic_prefix": f"{run}-none"}, {"target_cluster": "c1"})
    assert list(harmless.warnings) == []


async def test_a_rule_for_some_clients_is_refused_while_a_router_would_apply_it_to_all(
    mesh_of_two: World, topic: str
) -> None:
    older = mesh_of_two.rollouts.Report()
    router = admin.Member(name="members/router-9", kind=admin.MEMBER_KIND_ROUTER, version="0.1.0")
    await older.write(discovery.RouterReport(router=router))
    await older.read()

    async def is_known() -> bool:
        return "members/router-9" in {member.name for member in (await mesh_of_two.status()).members}

    await until(is_known, "control knows the router")
    try:
        set_for_shops = mesh_of_two.set_rule({"topic": topic, "client": KEPT}, {"target_cluster": "c2"})
        await refused(set_for_shops, grpc.StatusCode.FAILED_PRECONDITION, "router 'router-9' is of release 0.1.0")
        await mesh_of_two.set(topic, "c1")  # what is for everybody it understands
    finally:
        older.cancel()
