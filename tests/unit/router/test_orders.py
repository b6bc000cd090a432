"""Orders as data planes read them, and what it costs to write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh import durations
from mesh.at_once import done_at_once
from mesh.routing import (
    ExactName,
    ForwardingRule,
    RoutingState,
    RoutingTable,
    RuleVersion,
    UpstreamCluster,
    codec,
    packed,
)
from mesh.routing.codec import table_from_proto, table_to_proto
from mesh.routing.table_bytes import TableBytes
from mesh.routing.table_reader import TableReader
from mesh.rpc import discovery, routing, topic_moves
from services.router.discovery.member import Apply, Hold, Order, Release, Switch, Try
from services.router.discovery.orders import PART_BYTES, OrderEncoder, OrderStream
from tests.unit.router.decisions import DecisionLog

MANY = 1_000


def read(encoder: OrderEncoder, order: Order) -> discovery.WatchResponse:
    """The order as a member reads it that reads no deltas."""
    return sent(OrderStream(encoder), order)


def sent(stream: OrderStream, order: Order) -> discovery.WatchResponse:
    """The one message that the stream has for an order."""
    (message,) = stream.messages(order)
    return discovery.WatchResponse.FromString(message)


def states() -> list[RoutingState]:
    """Some of everything that tables hold: clusters, rules of some clients, ended versions, pasts, pending tables."""
    log = DecisionLog()
    log.cluster("c1")
    return [
        log.state,
        log.cluster("c2"),
        log.rule("apples", to="c1"),
        log.rule("pears", to="c2", client_id="shop"),
        log.move("apples", to="c2"),
        log.switch(),
        log.move("pears", to="c1"),
        log.switch(),
        log.remove("apples"),
        log.rule("plums", to="c1", hold=True),
    ]


TABLES = [table for state in states() for table in (state.effective, state.pending) if table is not None]


def test_the_tables_here_have_pasts_and_ended_versions() -> None:
    assert any(table.pasts for table in TABLES)
    assert any(table.ended for table in TABLES)


@given(st.lists(st.sampled_from(TABLES), max_size=12))
def test_a_table_reaches_data_planes_as_it_is_whatever_was_sent_before(tables: list[RoutingTable]) -> None:
    encoder = OrderEncoder()
    for table in tables:
        apply, hold = read(encoder, Apply(table)), read(encoder, Hold(table, 7_000))
        canary = read(encoder, Try(table, 50))
        assert table_from_proto(apply.apply) == table
        assert (table_from_proto(hold.hold.table), durations.whole_ms(hold.hold.timeout)) == (table, 7_000)
        assert (table_from_proto(canary.canary.table), canary.canary.permille) == (table, 50)


def test_orders_without_a_table_name_their_revision() -> None:
    encoder = OrderEncoder()
    assert read(encoder, Switch(300)).switch == discovery.SwitchOrder(revision=300)
    producers = topic_moves.TopicMoveProducers(topic="apples")
    assert read(encoder, Switch(300, producers)).switch.producers == producers
    assert read(encoder, Release(301)).release.revision == 301


def test_a_change_encodes_the_rules_that_change_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = codec.version_to_proto

    def counted(version: RuleVersion) -> Any:
        encoded.append(version.rule.rule_id)
        return encode(version)

    monkeypatch.setattr(codec, "version_to_proto", counted)
    log, encoder = DecisionLog(), OrderEncoder()
    log.cluster("c1")
    rules = [ForwardingRule(f"r{number}", ExactName(f"topic-{number}"), "c1") for number in range(MANY)]
    versions = [RuleVersion(rule, float(place), 1) for place, rule in enumerate(rules)]
    log.state = RoutingState(RoutingTable(1, log.state.effective.clusters.values(), versions), None, 1)
    stream = OrderStream(encoder, reads_deltas=True)
    sent(stream, Apply(log.state.effective))
    assert len(encoded) == MANY
    encoded.clear()
    read(encoder, Apply(log.rule("apples", to="c1").effective))
    assert encoded == ["apples"]
    read(encoder, Apply(log.remove("apples").effective))
    assert encoded == ["apples"]


ORDERS = st.lists(st.tuples(st.sampled_from((Apply, Hold, Try)), st.sampled_from(TABLES)), max_size=12)


@given(ORDERS, st.sampled_from([None, *TABLES]))
def test_a_member_that_reads_deltas_gets_the_same_tables(
    orders: list[tuple[type[Apply | Hold | Try], RoutingTable]], runs: RoutingTable | None
) -> None:
    """Whatever it runs at first; another member of the same router reads whole tables."""
    encoder, reader = OrderEncoder(), TableReader()
    digest = b"" if runs is None else done_at_once(reader.begin(table_from_proto(table_to_proto(runs))))
    stream = OrderStream(encoder, reads_deltas=True, table_digest=digest)
    for place, (kind, table) in enumerate(orders):
        order = Apply(table) if kind is Apply else Hold(table, 7_000) if kind is Hold else Try(table, 50)
        response = sent(stream, order)
        message = table_of(response)
        is_delta = isinstance(message, routing.TableDelta)
        assert done_at_once(reader.after(message) if is_delta else reader.whole(message)) == table
        assert is_delta == (place > 0 or (runs is not None and same(runs, table)))
        assert table_from_proto(table_of(read(encoder, order))) == table


def same(one: RoutingTable, other: RoutingTable) -> bool:
    """Whether the router, which has just begun, knows the member's table."""
    return TableBytes().digest(one) == TableBytes().digest(other)


def table_of(response: discovery.WatchResponse) -> Any:
    """The table of an order, or the delta in its place."""
    kind = response.WhichOneof("kind")
    assert kind is not None
    order = getattr(response, kind)
    if kind in ("apply", "apply_delta"):
        return order
    return order.delta if order.HasField("delta") else order.table


def test_a_gateway_that_comes_from_another_router_gets_the_little_that_differs() -> None:
    """Both routers have read the same log."""
    table = TABLES[-1]
    held = TableBytes().digest(table_from_proto(table_to_proto(table)))
    response = sent(OrderStream(OrderEncoder(), reads_deltas=True, table_digest=held), Apply(table))
    delta = response.apply_delta
    assert (delta.base, delta.digest) == (held, held)
    assert response.ByteSize() < 64


def test_tables_of_one_number_are_told_apart() -> None:
    """A cluster changes while a move is pending: the table before the switch and the one after have one revision."""
    log = DecisionLog()
    log.cluster("c1")
    log.cluster("c2")
    log.rule("apples", to="c1")
    log.move("apples", to="c2")
    before = log.cluster("c2", port=9093).effective
    after = log.switch().effective
    assert before.revision == after.revision
    held = TableBytes().digest(before)
    response = sent(OrderStream(OrderEncoder(), reads_deltas=True, table_digest=held), Apply(after))
    assert response.HasField("apply")


@pytest.mark.parametrize("kind", ["apply", "hold", "canary"])
def test_a_large_table_goes_in_parts_to_a_member_that_reads_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message of it is large, so that no gateway stands still to parse one; nor does the gateway sort the rules."""
    table = large_table()
    orders: dict[str, Order] = {"apply": Apply(table), "hold": Hold(table, 7_000), "canary": Try(table, 50)}
    order = orders[kind]
    encoder, reader = OrderEncoder(), TableReader()
    messages = [*OrderStream(encoder, reads_parts=True).messages(order)]
    assert max(map(len, messages)) < 2 * PART_BYTES
    *parts, last = map(discovery.WatchResponse.FromString, messages)
    assert len(parts) > 1
    monkeypatch.setattr(packed.VERSIONS, "read", None)  # to sort the rules, they are read again
    for part in parts:
        assert part.WhichOneof("kind") == "part"
        done_at_once(reader.part(part.part))
    assert last.WhichOneof("kind") == kind
    whole = done_at_once(reader.whole(table_of(last)))
    monkeypatch.undo()
    assert whole == table
    assert table_of(read(encoder, order)).revision == table.revision, "a member that reads no parts gets one message"


def large_table() -> RoutingTable:
    rules = [ForwardingRule(f"r{number}", ExactName(f"topic-{number:0100}"), "c1") for number in range(2 * MANY)]
    versions = [RuleVersion(rule, float(place), 1) for place, rule in enumerate(rules)]
    return RoutingTable(3, [UpstreamCluster("c1", ("127.0.0.1:1",), 1)], versions)
