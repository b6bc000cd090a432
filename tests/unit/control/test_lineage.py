"""Lineage without I/O: which application a client is of, the edges of a look, what is kept, and the ways through it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from mesh.record_rules import RecordRule
from mesh.routing import ANONYMOUS
from mesh.rpc import discovery, record_rules
from services.control.domain.lineage.applications import Application, application_named, application_of, without_ends
from services.control.domain.lineage.edges import Edge, EdgeKind, Node, NodeKind, edges_of_clients, edges_of_rules
from services.control.domain.lineage.memory import GONE_AFTER, LONGEST_NAME, STORED_EVERY, Memory, Seen
from services.control.domain.lineage.rates import Rate, Traffic, rates_of
from services.control.domain.lineage.ways import Direction, Walk
from tests.unit.control.worlds import table

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
UUID = "8f0b4f6a-7f5c-4e0e-9a44-1f2ad6b8c001"


@pytest.mark.parametrize(
    ("client_id", "application"),
    [
        ("orders", "orders"),
        ("orders-0", "orders"),
        ("orders_12", "orders"),
        ("orders-consumer", "orders"),
        ("orders-producer-3", "orders"),
        ("orders-7c9d4b7d5c-x2x4z", "orders"),
        (f"orders-{UUID}", "orders"),
        (f"orders-{UUID}-StreamThread-1-consumer", "orders"),
        (f"orders-{UUID}-StreamThread-2-restore-consumer", "orders"),
        (f"orders-{UUID}-GlobalStreamThread-global-consumer", "orders"),
        ("shop.orders-v2", "shop.orders-v2"),
        ("order-service", "order-service"),
        ("-1", "-1"),
        ("rdkafka", ""),
        ("producer-1", ""),
        ("consumer-billing-1", ""),
        ("aiokafka-0.12.0", ""),
        ("", ""),
    ],
)
def test_instances_of_an_application_count_as_one(client_id: str, application: str) -> None:
    assert application_of("User:alice", client_id) == Application("User:alice", application)


def test_a_long_client_id_takes_no_time() -> None:
    long = "orders" + "-1" * 100_000
    assert without_ends(long) == long
    assert without_ends("orders" + "-1" * 100) == "orders"


def test_the_name_of_an_application_says_both_parts() -> None:
    one = Application("User:CN=a/b,O=100%", "shop/orders%2F")
    assert application_named(one.name) == one
    assert application_named("orders") is None
    assert application_named("User:a/b/c") is None
    assert application_of("", "rdkafka").is_shared
    assert not application_of("User:alice", "rdkafka").is_shared


def test_rates_are_those_of_all_client_ids_and_of_groups_that_are_alone() -> None:
    def counted(client_id: str, name: str, api: str, records: float) -> Traffic:
        return Traffic("User:alice", client_id, name, api, Rate(records, 10 * records))

    both = (Edge(group("g1"), app("c"), EdgeKind.MEMBER), Edge(group("g2"), app("c"), EdgeKind.MEMBER))
    reader = Edge(topic("orders"), app("reader"), EdgeKind.CONSUMES)
    shared = Edge(topic("orders"), group("g1"), EdgeKind.CONSUMES)
    found = rates_of(
        [*EDGES[:5], *both, reader, shared],
        [
            counted("a-0", "orders", "Produce", 1.0), counted("a-1", "orders", "Produce", 2.0),
            counted("b", "orders", "Fetch", 4.0), counted("b", "orders", "Produce", 99.0),
            counted("c", "orders", "Fetch", 8.0), counted("reader", "orders", "Fetch", 16.0),
        ],
    )  # fmt: skip
    assert found == {EDGES[0]: Rate(3.0, 30.0), EDGES[1]: Rate(4.0, 40.0), reader: Rate(16.0, 160.0)}


def client(client_id: str, *, out: Sequence[str] = (), into: Sequence[str] = (), groups: Sequence[str] = ()) -> (
    discovery.ConnectedClient
):  # fmt: skip
    topics = [*out, *into]
    places = range(len(topics))
    return discovery.ConnectedClient(
        client_id=client_id, principal="User:alice", topics=topics, groups=groups,
        produced=places[: len(out)], consumed=places[len(out) :],
    )  # fmt: skip


def topic(name: str) -> Node:
    return Node(NodeKind.TOPIC, name)


def group(name: str) -> Node:
    return Node(NodeKind.GROUP, name)


def app(name: str, principal: str = "User:alice") -> Node:
    return Node(NodeKind.APPLICATION, f"{principal}/{name}")


def shown(*reports: discovery.ClientReport, committed: dict[str, list[str]] | None = None) -> set[Edge]:
    return set(edges_of_clients(reports, committed or {}, ["shop-1"]))


def test_connections_at_several_gateways_are_one_application() -> None:
    """One gateway has the connection to the coordinator, another one that of the records."""
    one = discovery.ClientReport(clients=[client("b-0", groups=["billing"])])
    other = discovery.ClientReport(clients=[client("b-1", out=["invoices"], into=["orders"])])
    assert shown(one, other) == {
        Edge(topic("orders"), group("billing"), EdgeKind.CONSUMES),
        Edge(group("billing"), app("b"), EdgeKind.MEMBER),
        Edge(app("b"), topic("invoices"), EdgeKind.PRODUCES),
    }


def test_offsets_say_which_of_several_groups_reads_a_topic() -> None:
    report = discovery.ClientReport(clients=[client("b", into=["orders", "returns", "x"], groups=["g1", "g2"])])
    found = shown(report, committed={"g1": ["orders"], "g2": ["returns"]})
    consumes = {(each.source.name, each.target) for each in found if each.kind is EdgeKind.CONSUMES}
    assert consumes == {("orders", group("g1")), ("returns", group("g2")), ("x", app("b"))}


def test_a_reader_without_a_group_and_a_sidecar_are_seen() -> None:
    report = discovery.ClientReport(clients=[client("shop-1", into=["orders"])])
    assert shown(report) == {
        Edge(topic("orders"), app("shop"), EdgeKind.CONSUMES),
        Edge(app("shop"), Node(NodeKind.BACKEND, "shop"), EdgeKind.DELIVERS),
    }


def test_a_place_that_a_gateway_of_another_release_reports_wrongly_is_left_out() -> None:
    wrong = discovery.ConnectedClient(client_id="b", principal="User:alice", topics=["orders"], produced=[0, 7])
    assert shown(discovery.ClientReport(clients=[wrong])) == {Edge(app("b"), topic("orders"), EdgeKind.PRODUCES)}


def rule(spec: record_rules.RecordRuleSpec, *, paused: bool = False) -> RecordRule:
    return RecordRule(spec, 1, 1, "User:op", NOW, paused=paused)


def test_record_rules_copy_while_a_router_runs_them() -> None:
    mirror = record_rules.MirrorSpec(
        source_cluster="c1", target_cluster="c2", topic_prefix="shop.", target_topic="{source_cluster}.{topic}"
    )
    content = record_rules.ContentRuleSpec(
        source_cluster="c1", topic="orders",
        branches=[record_rules.ContentBranch(when="true", target=record_rules.RecordTarget(cluster="c2", topic="a"))],
    )  # fmt: skip
    copy = record_rules.CopySpec(source_cluster="c1", topic="x", target_cluster="c2", target_topic="y")
    rules = [
        rule(record_rules.RecordRuleSpec(record_rule_id="m", mirror=mirror)),
        rule(record_rules.RecordRuleSpec(record_rule_id="c", content=content)),
        rule(record_rules.RecordRuleSpec(record_rule_id="move-7", copy=copy)),
        rule(record_rules.RecordRuleSpec(record_rule_id="paused", copy=copy), paused=True),
        rule(record_rules.RecordRuleSpec(record_rule_id="silent", copy=copy)),
        rule(record_rules.RecordRuleSpec(record_rule_id="broken", copy=copy)),
    ]
    read = [record_rules.PartitionProgress(topic="shop.apples", partition=each) for each in range(2)]
    progress = {each.rule_id: record_rules.RecordRuleProgress(partitions=read) for each in rules}
    del progress["silent"]
    progress["broken"].problem = "no router runs it"
    found = {(each.source.name, each.target.name, each.rule) for each in edges_of_rules(rules, progress)}
    assert found == {
        ("c1/shop.apples", "c2/c1.shop.apples", "recordrules/m"),
        ("c1/orders", "c2/a", "recordrules/c"),
        ("c1/orders", "c1/orders.dlq", "recordrules/c"),
        ("c1/x", "c2/y", "topicmoves/7"),
    }


def edge(number: int) -> Edge:
    return Edge(app(f"a{number}"), topic("orders"), EdgeKind.PRODUCES)


def memory(most: int = 10) -> Memory:
    return Memory(most, timedelta(days=1))


def test_an_edge_becomes_a_row_at_first_seldom_after_that_and_when_it_is_gone() -> None:
    kept = memory()
    assert kept.look([edge(1)], NOW).written == (Seen(edge(1), NOW, NOW, present=True),)
    assert kept.look([edge(1)], NOW + SECOND).written == ()
    later = NOW + STORED_EVERY
    assert kept.look([edge(1)], later).written == (Seen(edge(1), NOW, later, present=True),)
    assert kept.look([], later + GONE_AFTER - SECOND).written == ()
    gone = later + GONE_AFTER
    assert kept.look([], gone).written == (Seen(edge(1), NOW, later, present=False),), "last seen when it was there"
    assert kept.look([], gone + SECOND).written == ()
    back = gone + 2 * SECOND
    assert kept.look([edge(1)], back).written == (Seen(edge(1), NOW, back, present=True),)


def test_a_new_edge_takes_the_place_of_the_one_gone_longest_or_is_left_out() -> None:
    kept = memory(most=2)
    kept.look([edge(1)], NOW)
    kept.look([edge(2)], NOW + GONE_AFTER)
    changes = kept.look([edge(2), edge(3)], NOW + GONE_AFTER)
    assert changes.deleted == (edge(1),)
    assert changes.left_out == 0
    changes = kept.look([edge(2), edge(3), edge(4)], NOW + GONE_AFTER + SECOND)
    assert (changes.written, changes.deleted, changes.left_out) == ((), (), 1)
    assert len(kept) == 2


def test_an_edge_is_forgotten_after_its_time_and_names_that_no_row_can_have_are_left_out() -> None:
    kept = memory()
    long, nul = (Edge(app(name), topic("orders"), EdgeKind.PRODUCES) for name in ("x" * LONGEST_NAME, "a\0b"))
    assert kept.look([edge(1), long, nul], NOW).left_out == 2
    changes = kept.look([], NOW + timedelta(days=1, seconds=1))
    assert changes.deleted == (edge(1),)
    assert len(kept) == 0


def test_a_new_leader_gives_clients_time_to_come_back() -> None:
    kept = memory()
    old = NOW - timedelta(hours=1)
    kept.recall([Seen(edge(1), old, old, present=True), Seen(edge(2), old, old, present=False)], NOW)
    assert kept.look([], NOW + SECOND).written == ()
    assert kept.look([edge(1)], NOW + 2 * SECOND).written[0].first == old
    assert len(kept) == 2


EDGES = (
    Edge(app("a"), topic("orders"), EdgeKind.PRODUCES),
    Edge(topic("orders"), group("billing"), EdgeKind.CONSUMES),
    Edge(group("billing"), app("b"), EdgeKind.MEMBER),
    Edge(app("b"), topic("invoices"), EdgeKind.PRODUCES),
    Edge(topic("c2/old.invoices"), topic("c1/copies"), EdgeKind.COPIES, "recordrules/m"),
    Edge(topic("copies"), group("archive"), EdgeKind.CONSUMES),
    Edge(app("", ANONYMOUS), topic("orders"), EdgeKind.PRODUCES),
    Edge(topic("secret"), app("", ANONYMOUS), EdgeKind.CONSUMES),
)


def walk(start: Node, direction: Direction, *, unseen: Sequence[Node] = (), steps: int = 10) -> Walk:
    rules = table("invoices->c2:old.{topic}", "copies->c1", "orders->c1", "secret->c1")
    made = Walk(start, direction, rules, lambda node: node not in unseen)
    for _ in range(steps):
        if not made.frontier:
            break
        wanted = set(made.wanted())
        ends = [(each, each.source if direction is Direction.DOWNSTREAM else each.target) for each in EDGES]
        made.take([Seen(each, NOW, NOW, present=True) for each, end in ends if end in wanted])
    return made


def ways(made: Walk) -> dict[tuple[str, str], int]:
    return {(source.name, target.name): distance for (source, target, *_), (distance, _) in made.found.items()}


def test_a_walk_goes_through_applications_and_record_rules_by_the_names_of_clients() -> None:
    assert ways(walk(topic("orders"), Direction.DOWNSTREAM)) == {
        ("orders", "billing"): 0,
        ("billing", "User:alice/b"): 1,
        ("User:alice/b", "invoices"): 2,
        ("invoices", "copies"): 3,
        ("copies", "archive"): 4,
    }
    up = ways(walk(group("archive"), Direction.UPSTREAM))
    assert up["invoices", "copies"] == 1
    assert up["User:alice/a", "orders"] == 5


def test_a_walk_ends_where_clients_may_be_of_several_applications() -> None:
    up = ways(walk(topic("orders"), Direction.UPSTREAM))
    assert set(up) == {("User:alice/a", "orders"), (f"{ANONYMOUS}/", "orders")}


def test_a_walk_shows_nothing_behind_what_the_caller_may_not_see() -> None:
    made = walk(topic("orders"), Direction.DOWNSTREAM, unseen=[topic("invoices")])
    assert set(ways(made)) == {("orders", "billing"), ("billing", "User:alice/b")}
    assert made.hidden == {topic("invoices")}
