"""Topics under other names on their cluster: every template leads there and back, or is refused with the reason."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

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
from mesh.routing.codec import match_from_proto, match_to_proto, table_from_proto, table_to_proto
from mesh.rpc import routing
from mesh.topics import is_topic_name

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


def test_a_topic_has_one_name_and_that_of_the_rule_which_renames_counts() -> None:
    routes = table(renaming(NamePrefix("eu."), "tenant-a.{topic}"), ForwardingRule("all", NameRegex(".*"), "c1"))
    assert routes.virtual_topic("c1", "tenant-a.eu.orders") == "eu.orders"
    assert routes.route("tenant-a.eu.orders") is None, "clients know it as eu.orders"
    assert routes.virtual_topic("c1", "eu.orders") is None, "clients' eu.orders is another topic"
    assert routes.virtual_topic("c1", "us.orders") == "us.orders"
    assert routes.virtual_topic("c1", "tenant-a.us.orders") == "tenant-a.us.orders"
    assert routes.renames("c1")
    assert not routes.renames("c2")


def test_of_two_rules_that_rename_to_one_topic_the_first_one_names_it() -> None:
    routes = table(renaming(ExactName("orders"), "shop.orders"), renaming(NamePrefix("ord"), "shop.ord{suffix}"))
    assert routes.virtual_topic("c1", "shop.orders") == "orders"
    routes = table(renaming(ExactName("a"), "shop.orders"), renaming(NamePrefix("ord"), "shop.ord{suffix}"))
    assert routes.virtual_topic("c1", "shop.orders") == "a"
    assert routes.route("orders") is None
    assert routes.route("order") is not None


def test_a_rule_that_renames_may_take_a_topic_s_own_name_away_and_is_held() -> None:
    plain = ForwardingRule("shop", NamePrefix("shop."), "c1")
    assert may_move_topics(table(plain), table(plain, renaming(ExactName("orders"), "shop.orders")))
    assert not may_move_topics(table(plain), table(plain, renaming(ExactName("orders"), "shop.orders", "c2")))


PARTS = st.sampled_from(["a", "b", "-", ".", "ab"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("".join)
RENAMING = st.one_of(
    st.builds(renaming, NAMES.map(ExactName), NAMES, st.sampled_from(["c1", "c2"])),
    st.builds(
        renaming,
        NAMES.map(NamePrefix),
        st.sampled_from(["{topic}", "a{topic}", "{topic}-b", "{suffix}", "b.{suffix}"]),
        st.sampled_from(["c1", "c2"]),
    ),
    st.builds(
        renaming,
        st.sampled_from([r"(.*)-(.*)", r"(a*)b(.*)", r"(.+)\.(.+)"]).map(NameRegex),
        st.sampled_from(["{1}.{2}", "{2}{1}", "{topic}.a"]),
        st.just("c1"),
    ),
    st.builds(
        lambda match, target: ForwardingRule("r", match, target), NAMES.map(NamePrefix), st.sampled_from(["c1", "c2"])
    ),
)


@given(st.lists(RENAMING, max_size=6), NAMES, st.sampled_from(["c1", "c2"]))
def test_whatever_the_rules_a_topic_of_a_cluster_has_at_most_one_name_and_it_leads_there(
    rules: list[ForwardingRule], name: str, cluster: str
) -> None:
    assume(is_topic_name(name))
    routes = table(*rules)
    virtual = routes.virtual_topic(cluster, name)
    if virtual is not None:
        route = routes.route(virtual)
        assert route is not None
        assert (route.cluster, route.upstream_topic) == (cluster, name)
    route = routes.route(name)
    if route is not None and all(isinstance(rule.match, ExactName | NamePrefix) for rule in rules):
        assert routes.virtual_topic(route.cluster, route.upstream_topic) == name


def test_a_name_that_is_too_long_for_kafka_leads_nowhere() -> None:
    routes = table(renaming(NamePrefix("e"), "tenant-a.{topic}"))
    assert routes.route("e" * 245) is None
    assert routes.virtual_topic("c1", "tenant-a." + "e" * 245) is None


@pytest.mark.parametrize(
    ("match", "template", "says"),
    [
        (NamePrefix("eu."), "orders", "gives two topics one name"),
        (ExactName("orders"), "{suffix}", "gives two topics one name"),
        (ExactName("orders"), "{1}", "gives two topics one name"),
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


@pytest.mark.parametrize("subject", [Subject.GROUP, Subject.TRANSACTIONAL_ID, Subject.CLIENT_SOFTWARE])
def test_names_of_other_things_than_topics_are_texts_of_any_length(subject: Subject) -> None:
    text = "\N{GREEK SMALL LETTER PI} / " * 100
    assert ExactName(text, subject).matches(text)
    assert NamePrefix(text, subject).matches(text + "x")
    with pytest.raises(InvalidRuleError, match="at least 1 character"):
        ExactName("", subject)


def test_a_home_that_is_not_registered_counts_as_none() -> None:
    assert table(ForwardingRule("g", ExactName("g", Subject.GROUP), "c9")).group_rule("g") is None


def test_a_rule_of_a_newer_mesh_is_refused_by_name_and_not_passed_over() -> None:
    """A data plane that does not know a kind of match must not run the table as if the rule were not there."""
    message = table_to_proto(table(ForwardingRule("all", NameRegex(".*"), "c1")))
    unknown_kind = b"\xba\x06\x01x"  # field 103, a text
    message.rule_versions.add(
        rule=routing.RuleSpec(rule_id="later", match=routing.RuleMatch.FromString(unknown_kind), target_cluster="c1"),
        from_revision=1,
    )
    with pytest.raises(InvalidRuleError, match="rule 'later': field 103 of RuleMatch is not known here"):
        table_from_proto(message)


def test_every_kind_of_match_of_the_contract_is_known() -> None:
    for field in routing.RuleMatch.DESCRIPTOR.oneofs_by_name["kind"].fields:
        message = routing.RuleMatch()
        setattr(message, field.name, "a" if field.type == field.TYPE_STRING else True)
        assert match_to_proto(match_from_proto(message)) == message
