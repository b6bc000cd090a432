"""Rules about some clients only: whom a condition holds for, what each client sees, and the default cluster."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from mesh.routing import (
    ClientIdentity,
    ClientMatch,
    ExactName,
    ForwardingRule,
    InvalidRuleError,
    Match,
    NamePrefix,
    NameRegex,
    RoutingTable,
    RuleVersion,
    Subject,
    UnmatchedTopics,
    UpstreamCluster,
    may_move_topics,
)
from mesh.routing import table as table_module
from mesh.routing.codec import match_from_proto, match_to_proto, table_from_proto, table_to_proto
from mesh.routing.visits import Past, Stay

CLUSTERS = [UpstreamCluster(f"c{n}", (f"127.0.0.1:909{n}",), ordinal=n) for n in (1, 2, 3)]
SHOP = ClientIdentity(client_id="shop-1", software_name="librdkafka", software_version="2.10.0", address="10.1.2.3")
STRANGER = ClientIdentity()
OFFICE = ClientMatch(source_networks=("10.1.0.0/16",))
SHOPS = ClientMatch(client_id_prefix="shop-")


def table(*rules: tuple[Match, str] | tuple[Match, str, str]) -> RoutingTable:
    versions = []
    for number, (match, target, *template) in enumerate(rules):
        rule = ForwardingRule(f"r{number}", match, target, upstream_topic="".join(template))
        versions.append(RuleVersion(rule, float(number), 1))
    return RoutingTable(1, CLUSTERS, versions)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (ClientMatch(principal="User:ANONYMOUS"), True),
        (ClientMatch(principal="User:alice"), False),
        (ClientMatch(client_id="shop-1"), True),
        (ClientMatch(client_id="shop"), False),
        (ClientMatch(client_id_prefix="shop"), True),
        (ClientMatch(software_name="librdkafka"), True),
        (ClientMatch(software_name="librdkaf"), False),
        (ClientMatch(source_networks=("10.0.0.0/8",)), True),
        (ClientMatch(source_networks=("192.168.0.0/16", "10.1.2.3")), True),
        (ClientMatch(source_networks=("::ffff:10.1.0.0/112",)), True),
        (ClientMatch(source_networks=("2001:db8::/32",)), False),
        (ClientMatch(client_id_prefix="shop", software_name="sarama"), False),
    ],
)
def test_a_condition_holds_when_all_that_it_says_does(condition: ClientMatch, holds: bool) -> None:
    assert condition.holds_for(SHOP) is holds
    rules = table((ExactName("orders", client=condition), "c1"))
    assert rules.for_client(SHOP).cluster_of("orders") == ("c1" if holds else None)


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_ipv4_is_known_however_the_socket_tells_it(address: str) -> None:
    assert OFFICE.holds_for(ClientIdentity(address=address))


@pytest.mark.parametrize("address", ["", "localhost", "10.1.2"])
def test_a_client_without_an_address_is_in_no_network(address: str) -> None:
    assert not ClientMatch(source_networks=("0.0.0.0/0", "::/0")).holds_for(ClientIdentity(address=address))


def test_a_link_local_address_is_known_without_its_interface() -> None:
    assert ClientMatch(source_networks=("fe80::/10",)).holds_for(ClientIdentity(address="fe80::1%eth0"))


@pytest.mark.parametrize(
    ("networks", "told"),
    [
        (("10.2.0.0/16", "10.1.0.0/16"), ("10.1.0.0/16", "10.2.0.0/16")),
        (("10.1.2.0/24", "10.0.0.0/8"), ("10.0.0.0/8",)),
        (("10.1.2.3",), ("10.1.2.3/32",)),
        (("::ffff:10.0.0.0/104", "2001:db8::/32"), ("10.0.0.0/8", "2001:db8::/32")),
    ],
)
def test_conditions_that_mean_the_same_networks_are_equal(networks: tuple[str, ...], told: tuple[str, ...]) -> None:
    assert ClientMatch(source_networks=networks).source_networks == told
    assert ClientMatch(source_networks=networks) == ClientMatch(source_networks=told)


@pytest.mark.parametrize(
    ("make", "field", "says"),
    [
        (ClientMatch, "match.client", "says nothing"),
        (lambda: ClientMatch(source_networks=("10.1.2.3/8",)), "match.client.source_networks", "host bits set"),
        (lambda: ClientMatch(source_networks=("office",)), "match.client.source_networks", "is no network"),
        (lambda: ClientMatch(client_id="a", client_id_prefix="b"), "match.client.client_id_prefix", "leave one out"),
        (lambda: NamePrefix("kafkajs/", Subject.CLIENT_SOFTWARE, SHOPS), "match.client", "kafkajs/"),
    ],
)
def test_a_condition_that_cannot_be_says_which_field_is_wrong(make: object, field: str, says: str) -> None:
    with pytest.raises(InvalidRuleError, match=says) as raised:
        make()  # type: ignore[operator]
    assert raised.value.field_name == field


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (ClientMatch(client_id="shop-1"), SHOPS),
        (ClientMatch(client_id_prefix="shop-a"), SHOPS),
        (ClientMatch(client_id="shop-1", source_networks=("10.1.7.0/24",)), OFFICE),
        (SHOPS, SHOPS),
    ],
)
def test_a_condition_implies_those_that_ask_for_less(narrow: ClientMatch, wide: ClientMatch) -> None:
    assert narrow.implies(wide)
    assert narrow == wide or not wide.implies(narrow)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SHOPS, ClientMatch(client_id="till-1")),
        (SHOPS, ClientMatch(client_id_prefix="till-")),
        (OFFICE, ClientMatch(source_networks=("10.2.0.0/16", "2001:db8::/32"))),
        (ClientMatch(software_name="a"), ClientMatch(software_name="b")),
        (ClientMatch(principal="User:a"), ClientMatch(principal="User:b")),
    ],
)
def test_no_client_has_both_of_two_that_exclude_each_other(one: ClientMatch, other: ClientMatch) -> None:
    assert one.both(other) is None
    assert other.both(one) is None


def test_two_conditions_together() -> None:
    wide = ClientMatch(client_id_prefix="shop", source_networks=("10.0.0.0/8", "192.168.0.0/16"))
    assert wide.both(OFFICE) == ClientMatch(client_id_prefix="shop", source_networks=("10.1.0.0/16",))


def test_a_table_without_conditions_is_everybody_s() -> None:
    rules = table((ExactName("orders"), "c1"))
    assert rules.for_client(SHOP) is rules


def test_clients_of_one_kind_share_a_table() -> None:
    rules = table((ExactName("orders", client=SHOPS), "c1"), (ExactName("orders"), "c2"))
    assert rules.for_client(SHOP) is rules.for_client(ClientIdentity(client_id="shop-2"))
    assert rules.for_client(STRANGER) is rules
    assert (rules.for_client(SHOP).cluster_of("orders"), rules.cluster_of("orders")) == ("c1", "c2")
    assert rules.for_client(SHOP).for_client(STRANGER).cluster_of("orders") == "c2"


def test_order_decides_among_rules_for_some_and_for_all() -> None:
    rules = table((ExactName("orders"), "c1"), (NamePrefix("o", client=SHOPS), "c2"), (NamePrefix("o"), "c3"))
    seen = rules.for_client(SHOP)
    assert [seen.cluster_of(name) for name in ("orders", "others")] == ["c1", "c2"]
    assert [rules.cluster_of(name) for name in ("orders", "others")] == ["c1", "c3"]
    assert [rule.rule_id for rule in seen.rules] == ["r0", "r1", "r2"]
    assert [rule.rule_id for rule in rules.for_clients(OFFICE).rules] == ["r0", "r1", "r2"]


def test_groups_and_transactional_ids_have_a_home_for_each_kind_of_client() -> None:
    rules = table(
        (NameRegex(".*", Subject.GROUP, SHOPS), "c1"),
        (NameRegex(".*", Subject.GROUP), "c2"),
        (ExactName("t", Subject.TRANSACTIONAL_ID, OFFICE), "c3"),
    )
    ours, others = rules.for_client(SHOP).group_rule("g"), rules.group_rule("g")
    assert (ours and ours.target_cluster, others and others.target_cluster) == ("c1", "c2")
    assert rules.for_client(SHOP).transaction_rule("t") is not None
    assert rules.transaction_rule("t") is None


def test_each_tenant_has_its_own_topics_of_one_name() -> None:
    rules = table(
        (UnmatchedTopics(ClientMatch(client_id_prefix="a-")), "c1", "a.{topic}"),
        (UnmatchedTopics(ClientMatch(client_id_prefix="b-")), "c1", "b.{topic}"),
    )
    a, b = (rules.for_client(ClientIdentity(client_id=f"{tenant}-1")) for tenant in "ab")
    names = [route and route.upstream_topic for route in (a.route("orders"), b.route("orders"), rules.route("orders"))]
    assert names == ["a.orders", "b.orders", None]
    assert [seen.virtual_topic("c1", "a.orders") for seen in (a, b, rules)] == ["orders", None, None]


def test_a_topic_is_known_to_others_although_this_client_s_own_one_lives_elsewhere() -> None:
    rules = table(
        (ExactName("orders", client=SHOPS), "c2"),
        (ExactName("orders"), "c1"),
        (ExactName("bills", client=OFFICE), "c1", "b.{topic}"),
        (NameRegex(".*"), "c3"),
    )
    shop = rules.for_client(ClientIdentity(client_id="shop-1"))
    assert shop.virtual_topic("c1", "orders") is None
    assert shop.is_known_to_others("c1", "orders")
    assert shop.is_known_to_others("c1", "b.bills")
    assert not shop.is_known_to_others("c1", "others")
    assert not shop.is_known_to_others("c3", "orders"), "a rule before it takes the name, for everyone"


def test_visits_are_counted_by_the_rules_that_a_client_sees() -> None:
    moved = ForwardingRule("r0", ExactName("orders"), "c1")
    ours = ForwardingRule("r1", ExactName("orders", client=SHOPS), "c2")
    back = ForwardingRule("r2", ExactName("orders", client=SHOPS), "c1")
    versions = [
        RuleVersion(moved, 5.0, 1),
        RuleVersion(ours, 1.0, 2, 3),
        RuleVersion(back, 1.0, 3),
    ]
    rules = RoutingTable(3, CLUSTERS, versions)
    shop, other = rules.for_client(SHOP).route("orders"), rules.for_client(STRANGER).route("orders")
    assert shop is not None
    assert (shop.cluster, shop.visit, shop.before and shop.before.cluster) == ("c1", 2, "c2")
    assert other is not None
    assert (other.cluster, other.visit, other.before) == ("c1", 1, None)


def test_conditions_are_found_whatever_they_say() -> None:
    conditions = [
        ClientMatch(client_id="shop-1"),
        ClientMatch(client_id_prefix="s"),
        ClientMatch(client_id_prefix="shop-2"),
        ClientMatch(principal="User:ANONYMOUS"),
        ClientMatch(principal="User:alice"),
        ClientMatch(software_name="librdkafka"),
        ClientMatch(source_networks=("10.1.0.0/16", "::/0")),
        ClientMatch(source_networks=("0.0.0.0/0",), software_name="sarama"),
        ClientMatch(principal="User:ANONYMOUS", software_name="sarama"),
    ]
    rules = table(*((ExactName(f"t{n}", client=each), "c1") for n, each in enumerate(conditions)))
    for client in (SHOP, STRANGER, ClientIdentity("User:alice", "shop-22", "sarama", "1", "2001:db8::1")):
        seen = rules.for_client(client)
        found = [n for n in range(len(conditions)) if seen.cluster_of(f"t{n}")]
        assert found == [n for n, each in enumerate(conditions) if each.holds_for(client)]


def test_what_all_tables_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "ROUTE_CACHE_LIMIT", 10)
    rules = table((NamePrefix("a"), "c1"), (NamePrefix("b", client=SHOPS), "c2"))
    seen = rules.for_client(SHOP)
    for number in range(50):
        assert seen.cluster_of(f"a{number}") == rules.cluster_of(f"a{number}") == "c1"
        assert seen.cluster_of(f"b{number}") == "c2"
        assert len(seen._cache) + len(rules._cache) <= 10


# --- topics that no rule matches -----------------------------------------------------------------------------------


def test_the_default_cluster_is_tried_last_whatever_its_rank() -> None:
    rules = table((UnmatchedTopics(), "c1"), (ExactName("orders"), "c2"), (NameRegex("x.*"), "c3"))
    assert [rules.cluster_of(topic) for topic in ("orders", "xy", "other")] == ["c2", "c3", "c1"]
    assert [rule.rule_id for rule in rules.rules] == ["r1", "r2", "r0"]
    assert rules.virtual_topic("c1", "other") == "other"
    assert rules.virtual_topic("c1", "orders") is None


def test_each_kind_of_client_may_have_its_default_cluster() -> None:
    rules = table((UnmatchedTopics(SHOPS), "c1"), (UnmatchedTopics(), "c2"))
    assert (rules.for_client(SHOP).cluster_of("t"), rules.cluster_of("t")) == ("c1", "c2")


def test_visits_of_a_default_cluster_end_where_another_rule_takes_the_topic() -> None:
    default = ForwardingRule("default", UnmatchedTopics(), "c1")
    taken = ForwardingRule("taken", ExactName("orders"), "c2")
    rules = RoutingTable(3, CLUSTERS, [RuleVersion(default, 1.0, 1), RuleVersion(taken, 2.0, 2, 3)])
    route = rules.route("orders")
    assert route is not None
    assert (route.cluster, route.visit, route.before and route.before.cluster) == ("c1", 2, "c2")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("fixed", "gives two topics one name"),
        ("{suffix}", "gives two topics one name"),
        ("{1}", "gives two topics one name"),
    ],
)
def test_a_default_cluster_renames_by_the_whole_topic_only(template: str, says: str) -> None:
    with pytest.raises(InvalidRuleError, match=says):
        ForwardingRule("d", UnmatchedTopics(), "c1", upstream_topic=template)


def test_a_default_cluster_that_is_not_true_is_refused() -> None:
    message = match_to_proto(UnmatchedTopics())
    message.unmatched_topics = False
    with pytest.raises(InvalidRuleError, match="always true"):
        match_from_proto(message)


# --- changes -------------------------------------------------------------------------------------------------------

DEFAULT = (UnmatchedTopics(), "c1")
ORDERS = (ExactName("orders"), "c1")


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ([ORDERS], [ORDERS, (NamePrefix("o", client=SHOPS), "c2")], False),
        ([ORDERS], [(NamePrefix("o", client=SHOPS), "c2"), ORDERS], True),
        ([ORDERS], [(ExactName("orders", client=SHOPS), "c1")], True),
        ([(ExactName("orders", client=SHOPS), "c1")], [(ExactName("orders", client=OFFICE), "c1")], True),
        ([(ExactName("t", client=SHOPS), "c1"), (ExactName("t", client=OFFICE), "c2")],
         [(ExactName("t", client=OFFICE), "c2"), (ExactName("t", client=SHOPS), "c1")], True),
        ([ORDERS], [ORDERS, DEFAULT], False),
        ([DEFAULT], [DEFAULT, ORDERS], True),
        ([ORDERS, DEFAULT], [ORDERS], True),
        ([DEFAULT], [(UnmatchedTopics(), "c2")], True),
        ([DEFAULT], [(UnmatchedTopics(SHOPS), "c1")], True),
        ([ORDERS], [ORDERS, (ExactName("g", Subject.GROUP, SHOPS), "c2")], False),
    ],
)  # fmt: skip
def test_what_moves_for_some_client_is_a_move(
    before: list[tuple[Match, str]], after: list[tuple[Match, str]], moves: bool
) -> None:
    assert may_move_topics(table(*before), table(*after)) is moves


def test_a_table_with_conditions_survives_the_wire() -> None:
    rules = table(
        (ExactName("orders", client=ClientMatch("User:alice", "", "shop-", "librdkafka", ("10.1.0.0/16",))), "c1"),
        (NameRegex(".*", Subject.GROUP, OFFICE), "c2"),
        (UnmatchedTopics(SHOPS), "c3"),
        (UnmatchedTopics(), "c1"),
    )
    assert table_from_proto(table_to_proto(rules)) == rules


@pytest.mark.parametrize("part", ["table", "version", "rule", "match", "client", "past", "stay"])
def test_a_table_that_says_more_than_is_known_here_is_refused(part: str) -> None:
    rules = table((ExactName("orders", client=SHOPS), "c1"))
    past = Past(ExactName("apples"), 1, (Stay("c2", 1, ""),))
    message = table_to_proto(RoutingTable(1, CLUSTERS, rules.versions, [past]))
    version = message.rule_versions[0]
    parts: dict[str, Message] = {
        "table": message,
        "version": version,
        "rule": version.rule,
        "match": version.rule.match,
        "client": version.rule.match.client,
        "past": message.pasts[0],
        "stay": message.pasts[0].stays[0],
    }
    of_a_newer_release = b"\xa0\x06\x01"  # field 100
    parts[part].MergeFromString(of_a_newer_release)
    with pytest.raises(InvalidRuleError, match=r"field 100 .* newer release"):
        table_from_proto(message)
