"""Topics under other names on their cluster: every template leads there and back, or is refused with the reason."""

from __future__ import annotations

import pytest

from mesh.routing import (
    ExactName,
    ForwardingRule,
    InvalidRuleError,
    Match,
    NamePrefix,
    NameRegex,
    RoutingTable,
    RuleVersion,
    Stay,
    Subject,
    UpstreamCluster,
    may_move_topics,
)
from mesh.routing.codec import table_from_proto, table_to_proto

C1 = UpstreamCluster("c1", ("127.0.0.1:9092",), ordinal=1, home=True)
C2 = UpstreamCluster("c2", ("127.0.0.1:9093",), ordinal=2)


def table(*rules: ForwardingRule) -> RoutingTable:
    return RoutingTable(1, [C1, C2], [RuleVersion(rule, float(rank), 1) for rank, rule in enumerate(rules)])


def renaming(match: Match, template: str, target: str = "c1") -> ForwardingRule:
    return ForwardingRule("r", match, target, upstream_topic=template)


@pytest.mark.parametrize(
    ("match", "template", "topic", "upstream"),
    [
        (ExactName("orders"), "shop.orders.v2", "orders", "shop.orders.v2"),
        (ExactName("orders"), "shop.{topic}", "orders", "shop.orders"),
        (NamePrefix("eu."), "tenant-a.{topic}", "eu.orders", "tenant-a.eu.orders"),
        (NamePrefix("eu."), "europe-{suffix}-x", "eu.orders", "europe-orders-x"),
        (NamePrefix("eu."), "europe-{suffix}", "eu.", "europe-"),
        (NameRegex(".*"), "tenant-a.{topic}", "orders", "tenant-a.orders"),
        (NameRegex(r"(\w+)\.orders\.(v\d+)"), "{2}-orders-{1}", "eu.orders.v1", "v1-orders-eu"),
    ],
)
def test_a_name_leads_to_the_cluster_and_back(match: Match, template: str, topic: str, upstream: str) -> None:
    routes = table(renaming(match, template))
    route = routes.route(topic)
    assert route is not None
    assert (route.cluster, route.upstream_topic) == ("c1", upstream)
    assert routes.virtual_topic("c1", upstream) == topic
    assert routes.virtual_topic("c2", upstream) is None


def test_a_topic_that_no_name_leads_to_has_none() -> None:
    routes = table(renaming(NamePrefix("eu."), "tenant-a.{topic}"), ForwardingRule("all", NameRegex(".*"), "c1"))
    assert routes.virtual_topic("c1", "tenant-a.eu.orders") in ("eu.orders", "tenant-a.eu.orders")
    assert routes.virtual_topic("c1", "eu.orders") is None, "clients' eu.orders is another topic"
    assert routes.virtual_topic("c1", "us.orders") == "us.orders"
    assert routes.renames("c1")
    assert not routes.renames("c2")


def test_a_name_that_is_too_long_for_kafka_leads_nowhere() -> None:
    assert table(renaming(NamePrefix("e"), "tenant-a.{topic}")).route("e" * 245) is None


@pytest.mark.parametrize(
    ("match", "template", "says"),
    [
        (NamePrefix("eu."), "orders", "could not be told apart"),
        (ExactName("orders"), "{suffix}", "could not be told apart"),
        (ExactName("orders"), "{1}", "could not be told apart"),
        (NamePrefix("eu."), "a{topic}b{topic}", "may stand once"),
        (NamePrefix("eu."), "a b{topic}", "neither text"),
        (NamePrefix("eu."), "{topic", "neither text"),
        (NameRegex(r"(a+)b(c+)"), "{1}", "every group"),
        (NameRegex(r"(a+)b|(c+)"), "{1}{2}", "row of text and groups"),
        (NameRegex(r"(a(b)c)"), "{1}{2}", "row of text and groups"),
        (NameRegex(r"a*(b)"), "{1}", "row of text and groups"),
        (NameRegex(r"(?:a)b"), "x{1}", "row of text and groups"),
        (ExactName("g", Subject.GROUP), "{topic}", "only rules about a topic"),
    ],
)
def test_a_template_that_could_not_be_read_backwards_is_refused(match: Match, template: str, says: str) -> None:
    with pytest.raises(InvalidRuleError, match=says) as raised:
        renaming(match, template)
    assert raised.value.field_name == "upstream_topic"


def test_another_name_on_the_same_cluster_is_another_place() -> None:
    old = RuleVersion(ForwardingRule("r", ExactName("orders"), "c1"), 1.0, 1, 5)
    new = RuleVersion(renaming(ExactName("orders"), "orders-2"), 1.0, 5)
    route = RoutingTable(5, [C1], [old, new]).route("orders")
    assert route is not None
    assert (route.visit, route.before) == (1, Stay("c1", 1, "orders"))
    assert may_move_topics(table(old.rule), table(new.rule))


def test_rules_about_one_subject_do_not_see_the_names_of_another() -> None:
    group = ForwardingRule("g", NamePrefix("shop", Subject.GROUP), "c2", shadow_topics=True)
    transactions = ForwardingRule("t", ExactName("shop", Subject.TRANSACTIONAL_ID), "c1", span_clusters=True)
    clients = ForwardingRule("n", NamePrefix("librdkafka/2.", Subject.CLIENT_SOFTWARE), "")
    routes = table(group, transactions, clients)
    assert routes.route("shop") is None
    assert routes.group_rule("shop-orders") == group
    assert routes.transaction_rule("shop") == transactions
    assert routes.transaction_rule("shop-orders") is None
    assert routes.client_rule("librdkafka", "2.10.0") == clients
    assert routes.client_rule("librdkafka", "1.9.0") is None
    assert not may_move_topics(table(), routes)
    assert table_from_proto(table_to_proto(routes)) == routes


def test_a_home_that_is_not_registered_counts_as_none() -> None:
    assert table(ForwardingRule("g", ExactName("g", Subject.GROUP), "c9")).group_rule("g") is None
