"""Rules about groups, transactional ids and clients, and topics with other names on their cluster, through the API."""

from __future__ import annotations

import grpc
import psycopg
from google.protobuf.field_mask_pb2 import FieldMask

from mesh import durations
from mesh.rpc import admin, routing
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, create_topic, refused, topics_of


async def test_rules_of_every_kind_are_listed_explained_and_kept_in_sql(mesh_of_two: World, database: str) -> None:
    mesh = mesh_of_two
    await mesh.set_rule({"group_prefix": "shop-"}, {"target_cluster": "c2", "shadow_topics": True})
    await mesh.set_rule({"transactional_id_regex": "pay-.*"}, {"target_cluster": "c2", "span_clusters": True})
    await mesh.set_rule({"client_software_prefix": "kafkajs/"}, {"node_view": routing.NODE_VIEW_SINGLE})
    await mesh.set_rule({"topic": "orders"}, {"target_cluster": "c1", "upstream_topic": "shop.{topic}"})
    listed = await mesh.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)
    assert [rule.spec.rule_id for rule in listed.rules] == [
        "shop-group-prefix", "pay-txn-regex", "kafkajs-client-prefix", "orders",
    ]  # fmt: skip
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "select match_kind, match, target_cluster, upstream_topic, shadow_topics, span_clusters, node_view"
            " from forwarding_rules order by rank"
        ).fetchall()
    assert rows == [
        ("group_prefix", "shop-", "c2", "", True, False, ""),
        ("transactional_id_regex", "pay-.*", "c2", "", False, True, ""),
        ("client_software_prefix", "kafkajs/", "", "", False, False, "single"),
        ("topic", "orders", "c1", "shop.{topic}", False, False, ""),
    ]

    group = await mesh.explain(group="shop-\N{GREEK SMALL LETTER PI} 1")
    assert (group.cluster, [tried.reason for tried in group.tried]) == ("c2", ["the group begins with 'shop-'"])
    transaction = await mesh.explain(transactional_id="pay-1")
    assert (transaction.cluster, transaction.tried[0].rule.spec.span_clusters) == ("c2", True)
    client = await mesh.explain(client_software="kafkajs/2.2.4")
    assert (client.cluster, client.node_view) == ("", routing.NODE_VIEW_SINGLE)
    topic = await mesh.explain("orders")
    assert (topic.cluster, topic.upstream_topic) == ("c1", "shop.orders")
    assert "does not exist on 'c1' as 'shop.orders'" in topic.notes[0]


async def test_what_no_rule_matches_is_explained_too(mesh_of_two: World) -> None:
    await mesh_of_two.set_rule({"group": "shop"}, {"target_cluster": "c2"})
    group = await mesh_of_two.explain(group="other")
    assert (group.cluster, group.tried[0].reason) == ("", "the group is not 'shop'")
    assert "where it lives already" in group.notes[0]
    assert "home cluster of the mesh, 'c1'" in (await mesh_of_two.explain(transactional_id="t")).notes[0]
    assert "no rule matches" in (await mesh_of_two.explain(client_software="x/1")).notes[0]
    await refused(mesh_of_two.explain(group=""), grpc.StatusCode.INVALID_ARGUMENT, "group: is empty")


async def test_a_topic_under_a_name_that_another_one_has_for_clients_is_explained(mesh_of_two: World) -> None:
    await mesh_of_two.set_rule({"topic": "orders"}, {"target_cluster": "c1", "upstream_topic": "shop.orders"})
    await mesh_of_two.set_rule({"topic_prefix": "shop."}, {"target_cluster": "c1"})
    why = await mesh_of_two.explain("shop.orders")
    assert why.cluster == ""
    assert "topic 'shop.orders' of 'c1' is known to clients as 'orders'" in why.notes[0]


async def test_update_changes_the_fields_of_its_mask(mesh_of_two: World) -> None:
    await mesh_of_two.set_rule({"group": "shop"}, {"target_cluster": "c2"})

    async def update(*paths: str, **spec: object) -> routing.RuleSpec:
        request = admin.UpdateRuleRequest(
            name="rules/shop-group",
            rule=routing.RuleSpec(**spec),  # type: ignore[arg-type]  # fields by their names
            update_mask=FieldMask(paths=paths),
        )
        return (await mesh_of_two.rules.UpdateRule(request, timeout=CALL)).rules[0].spec

    changed = await update("shadow_topics", shadow_topics=True, target_cluster="ignored")
    assert (changed.target_cluster, changed.shadow_topics) == ("c2", True)
    changed = await update("target_cluster", target_cluster="c1")
    assert (changed.target_cluster, changed.shadow_topics) == ("c1", True)
    await refused(
        update("upstream_topic", upstream_topic="x"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "rule.upstream_topic: only rules about a topic have upstream_topic; this one is about a group",
    )
    await refused(update("rule_id"), grpc.StatusCode.INVALID_ARGUMENT, "'rule_id' can't be updated")


async def test_a_cluster_stays_while_a_group_is_coordinated_by_it(mesh_of_two: World) -> None:
    await mesh_of_two.set_rule({"transactional_id": "pay"}, {"target_cluster": "c2"})
    remove = admin.RemoveClusterRequest(name="clusters/c2")
    await refused(
        mesh_of_two.clusters.RemoveCluster(remove, timeout=CALL), grpc.StatusCode.FAILED_PRECONDITION, "pay-txn"
    )
    await mesh_of_two.rules.RemoveRule(admin.RemoveRuleRequest(name="rules/pay-txn"), timeout=CALL)
    await mesh_of_two.clusters.RemoveCluster(remove, timeout=CALL)


async def test_rules_about_groups_ask_no_cluster(mesh_of_two: World) -> None:
    await mesh_of_two.register("down", "127.0.0.1:1", allow_unreachable=True)
    await mesh_of_two.set_rule({"group": "shop"}, {"target_cluster": "down"})
    changed = await mesh_of_two.set_rule({"group": "shop"}, {"target_cluster": "c1"})
    assert (list(changed.moves), durations.in_ms(changed.switch_duration)) == ([], 0)


async def test_a_topic_moves_under_its_names(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    here, there = f"tenant.{topic}", f"{topic}.v2"
    create_topic(kafka_c1.bootstrap, here, 3, **{"retention.ms": "86400000"})
    await mesh_of_two.set_rule({"topic": topic}, {"target_cluster": "c1", "upstream_topic": "tenant.{topic}"})
    assert (await mesh_of_two.explain(topic)).partitions == 3
    move = {"target_cluster": "c2", "upstream_topic": "{topic}.v2"}
    await refused(
        mesh_of_two.set_rule({"topic": topic}, move),
        grpc.StatusCode.FAILED_PRECONDITION,
        f"'{topic}' has 3 partitions on 'c1' as '{here}' and does not exist on 'c2' as '{there}'",
    )
    moved = await mesh_of_two.set_rule({"topic": topic}, move, create_missing_topics=True)
    (told,) = moved.moves
    assert (told.from_topic, told.to_topic, list(moved.created_topics)) == (here, there, [there])
    assert topics_of(kafka_c2.bootstrap)[there] == 3
    clusters = mesh_of_two.control.journal.view.state.effective.clusters
    settings = await mesh_of_two.control.connections.topic_settings(clusters["c2"], [there])
    assert settings[there] == {"retention.ms": "86400000"}
