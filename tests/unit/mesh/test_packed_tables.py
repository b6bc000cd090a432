"""A table of a data plane with very many entries: the work of a delta, of a look-up and of Python's collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from mesh.at_once import done_at_once
from mesh.routing import (
    ClientIdentity,
    ClientMatch,
    ExactName,
    ForwardingRule,
    InvalidRuleError,
    NamePrefix,
    RoutingTable,
    RuleVersion,
    Stay,
    UpstreamCluster,
    came_into_force,
    packed,
    table_reader,
)
from mesh.routing.codec import rule_to_proto, table_from_proto, table_to_proto
from mesh.routing.delta import delta_between
from mesh.routing.fold import with_changes
from mesh.routing.table_bytes import TableBytes
from mesh.routing.table_reader import TableReader
from mesh.routing.visits import Past
from mesh.rpc import events, routing

RULES, PASTS = 2_000, 3_000
FEW = 30
"""Entries: far fewer than there are, and more than one step has to read to find a place."""


def large_table() -> RoutingTable:
    rules = [
        ForwardingRule("some", ExactName("some", client=ClientMatch(client_id="shop")), "c1"),
        ForwardingRule("renamed", NamePrefix("new."), "c1", upstream_topic="old.{suffix}"),
        *(ForwardingRule(f"r{number}", ExactName(f"topic-{number}"), "c1") for number in range(RULES)),
    ]
    versions = [RuleVersion(rule, float(rank), 1) for rank, rule in enumerate(rules)]
    pasts = [Past(ExactName(f"topic-{number}"), 2, (Stay("c2", 1, ""),)) for number in range(PASTS)]
    clusters = [UpstreamCluster(name, ("127.0.0.1:1",), ordinal) for ordinal, name in enumerate(("c1", "c2"), 1)]
    return RoutingTable(3, clusters, versions, pasts)


def read(table: RoutingTable, reader: TableReader) -> RoutingTable:
    return done_at_once(reader.whole(routing.RoutingTable.FromString(TableBytes().of(table))))


def changed(table: RoutingTable) -> RoutingTable:
    """With one rule more, and one past less."""
    rule = ForwardingRule("new", ExactName("new"), "c1")
    return with_changes(table, 4, [events.RuleChange(created=rule_to_proto(rule), rank=0.5)])


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each entry that is read or made bytes."""
    done: list[str] = []

    def counted(name: str, plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(entry: Any) -> Any:
            done.append(name)
            return plain(entry)

        return call

    for form in (packed.VERSIONS, packed.PASTS):
        for name in ("read", "kept"):
            monkeypatch.setattr(form, name, counted(name, getattr(form, name)))
    return done


def test_a_look_up_reads_the_entries_of_its_topic_alone(work: list[str]) -> None:
    table = read(large_table(), TableReader())
    work.clear()
    route = table.route("topic-7")
    assert route is not None
    assert (route.visit, route.before) == (1, Stay("c2", 1, "topic-7"))
    assert work == ["read", "read"], "its rule and its past"
    assert table.route("topic-7") is route


def test_a_delta_touches_a_few_entries(work: list[str]) -> None:
    before = large_table()
    after = changed(before)
    delta = delta_between(before, after)
    assert delta is not None
    delta.base, delta.digest = TableBytes().digest(before), TableBytes().digest(after)
    reader = TableReader()
    read(before, reader)
    done_at_once(reader.encoded(read(before, reader)))
    work.clear()
    table = done_at_once(reader.after(delta))
    assert b"".join(done_at_once(reader.encoded(table)))
    assert 0 < len(work) < FEW
    assert table.route("new") is not None
    assert table == after


def test_questions_that_each_move_asks_read_few_entries(work: list[str]) -> None:
    """Whether a change has come into force, and whether other clients know a topic of the cluster."""
    before = large_table()
    after = changed(before)
    delta = delta_between(before, after)
    assert delta is not None
    delta.base, delta.digest = TableBytes().digest(before), TableBytes().digest(after)
    reader = TableReader()
    table = read(before, reader)
    following = done_at_once(reader.after(delta))
    work.clear()
    for revision in range(1, 6):
        assert came_into_force(revision, table) == came_into_force(revision, before)
        assert came_into_force(revision, following) == came_into_force(revision, after)
    assert came_into_force(4, following)
    assert not came_into_force(4, table)
    for topic in ("topic-7", "old.pears", "some", "nothing"):
        assert table.is_known_to_others("c1", topic) == before.is_known_to_others("c1", topic)
    assert len(work) < FEW
    work.clear()
    assert table == read(before, TableReader()) != following
    assert "read" not in work, "two tables are compared by their bytes"


def test_the_collector_has_no_work_with_the_entries_of_a_table() -> None:
    """With an object for each, one collection stood for 150 ms at 100,000 entries."""
    message = routing.RoutingTable.FromString(TableBytes().of(large_table()))
    reader = TableReader()
    gc.collect()
    before = len(gc.get_objects())
    table = done_at_once(reader.whole(message))
    done_at_once(reader.encoded(table))
    gc.collect()
    assert len(gc.get_objects()) - before < (RULES + PASTS) / 10
    assert len(table.living_rules) == RULES + 2


def test_a_table_goes_without_the_collector_once_nobody_uses_it() -> None:
    """The tables of clients, too: a collection would find them only after a whole table's memory was used twice."""
    table = read(large_table(), TableReader())
    seen = table.for_client(ClientIdentity(client_id="shop"))
    assert seen.route("some") is not None
    gone = [weakref.ref(table), weakref.ref(seen)]
    gc.disable()
    try:
        del table, seen
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_versions_that_come_out_of_their_order_are_put_in_order() -> None:
    """As an operator may write them by hand."""
    table = large_table()
    message = table_to_proto(table)
    versions = [*message.rule_versions]
    message.ClearField("rule_versions")
    message.rule_versions.extend(reversed(versions))
    assert done_at_once(TableReader().whole(message)) == table == table_from_proto(table_to_proto(table))


def test_an_error_in_a_part_is_told_for_the_order_that_ends_the_table() -> None:
    reader, wrong = TableReader(), routing.RoutingTable()
    wrong.rule_versions.add().rule.rule_id = "nothing-to-match"
    done_at_once(reader.part(wrong))
    done_at_once(reader.part(routing.RoutingTable()))
    with pytest.raises(InvalidRuleError, match="nothing-to-match"):
        done_at_once(reader.whole(routing.RoutingTable(revision=4)))
    assert read(large_table(), reader) == large_table(), "the next table is read from its beginning"


def test_parts_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "MOST_BYTES", 1_000)
    with pytest.raises(InvalidRuleError, match="more than 1000 bytes"):
        read(large_table(), TableReader())
