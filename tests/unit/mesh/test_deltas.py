"""A table that a data plane makes of deltas is the table that it would read whole, or the data plane notices."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mesh.at_once import done_at_once
from mesh.routing import (
    ExactName,
    Folding,
    ForwardingRule,
    InvalidRuleError,
    RoutingState,
    RoutingTable,
    RuleVersion,
    UpstreamCluster,
)
from mesh.routing.codec import table_from_proto, table_to_proto, version_to_proto
from mesh.routing.delta import delta_between
from mesh.routing.errors import WrongBaseError
from mesh.routing.policy_codec import MOST_CHANGES
from mesh.routing.table_bytes import TableBytes
from mesh.routing.table_reader import TableReader
from mesh.rpc import acls, events, quotas, routing
from tests.unit.mesh.test_folding import OTHERS, PICKERS, TOPICS, logs

ACLS = tuple(
    acls.Acl(
        resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
        resource_name=topic,
        pattern_type=acls.ACL_PATTERN_TYPE_LITERAL,
        principal="User:ann",
        host="*",
        operation=acls.ACL_OPERATION_READ,
        permission=acls.ACL_PERMISSION_ALLOW,
    )
    for topic in TOPICS
)
USERS = ("ann", "bob", "cleo")


@st.composite
def policy_events(draw: st.DrawFn) -> events.Event:
    some = draw(st.lists(st.sampled_from(ACLS), min_size=1, max_size=3))
    change = quotas.QuotaChange(key=quotas.QUOTA_KEY_PRODUCER_BYTE_RATE)
    change.entity.user.name = draw(st.sampled_from(USERS))
    if draw(st.booleans()):
        change.value = draw(st.integers(1, 3))
    return draw(
        st.sampled_from(
            (
                events.Event(acls_created=events.AclsCreated(acls=some)),
                events.Event(acls_deleted=events.AclsDeleted(acls=some)),
                events.Event(acl_mode_set=events.AclModeSet(mode=acls.ACL_MODE_OBSERVE, super_users=["User:root"])),
                events.Event(quotas_changed=events.QuotasChanged(changes=[change])),
            )
        )
    )


@st.composite
def decisions(draw: st.DrawFn) -> list[events.Event]:
    """A log about clusters, rules, ACLs and quotas."""
    log: list[events.Event] = []
    moved = {0: 0}
    for event in draw(logs()):
        log.extend(draw(st.lists(policy_events(), max_size=1)))
        log.append(event)
        moved[event.position] = len(log)
    for position, event in enumerate(log, start=1):
        event.position = position
        kind = event.WhichOneof("payload")
        if kind in ("rollout_switched", "rollout_aborted"):
            ending = getattr(event, kind)
            ending.revision = moved[ending.revision]
    return log


def tables_of(log: list[events.Event]) -> list[RoutingTable]:
    """All tables that a router has while it reads the log, each once, pending ones too."""
    folding, found = Folding(RoutingState()), [RoutingTable()]
    for event in log:
        folding.fold(event)
        for table in (folding.state.effective, folding.state.pending):
            if table is not None and not any(table is known for known in found):
                found.append(table)
    return found


def whole(table: RoutingTable) -> routing.RoutingTable:
    return routing.RoutingTable.FromString(TableBytes().of(table))


def with_digests(before: RoutingTable, after: RoutingTable) -> routing.TableDelta | None:
    delta = delta_between(before, after)
    if delta is not None:
        delta.base, delta.digest = TableBytes().digest(before), TableBytes().digest(after)
    return delta


def routes(table: RoutingTable) -> list[object]:
    return [
        [(seen.route(topic), seen.group_rule("g1"), seen.virtual_topic("c1", topic)) for topic in TOPICS]
        for seen in map(table.for_client, (PICKERS, OTHERS))
    ]


@settings(deadline=None)
@given(decisions(), st.data())
def test_the_table_by_deltas_is_the_table_read_whole(log: list[events.Event], data: st.DataObject) -> None:
    """Tables come in any order, some of them whole; some tables are skipped, and look-ups are made meanwhile."""
    tables, reader = tables_of(log), TableReader()
    base = done_at_once(reader.whole(whole(tables[0])))
    sent = tables[0]
    for table in data.draw(st.lists(st.sampled_from(tables), max_size=12)):
        delta = None if data.draw(st.integers(0, 5)) == 0 else with_digests(sent, table)
        base = done_at_once(reader.whole(whole(table)) if delta is None else reader.after(delta))
        sent = table
        if data.draw(st.booleans()):
            routes(base)
    read = table_from_proto(whole(sent))
    assert (base, routes(base)) == (read, routes(read))
    assert TableBytes().digest(base) == TableBytes().digest(read) == done_at_once(reader.begin(base))
    assert routing.RoutingTable.FromString(b"".join(done_at_once(reader.encoded(base)))) == whole(read)


@settings(deadline=None)
@given(decisions(), decisions(), st.data())
def test_a_delta_on_another_table_is_refused(
    log: list[events.Event], other: list[events.Event], data: st.DataObject
) -> None:
    """After lost orders, and from a router that has read another log; even if the base is not compared first."""
    tables = tables_of(log)
    before, after = (data.draw(st.sampled_from(tables)) for _ in range(2))
    held = data.draw(st.sampled_from([*tables, *tables_of(other)]))
    delta = with_digests(before, after)
    assume(delta is not None)  # a table without a policy that the one before has
    assert delta is not None
    reader = TableReader()
    done_at_once(reader.begin(held))
    if data.draw(st.booleans()):
        delta.base = TableBytes().digest(held)
    try:
        table = done_at_once(reader.after(delta))
    except (WrongBaseError, InvalidRuleError):
        return
    assert table == after


@settings(deadline=None)
@given(decisions())
def test_two_ways_to_a_table_have_one_digest(log: list[events.Event]) -> None:
    """Two routers of one log, one of which has read a snapshot in its midst."""
    at_once, state = Folding(RoutingState()), RoutingState()
    for event in log:
        at_once.fold(event)
        stepped = Folding(state)
        stepped.fold(event)
        state = stepped.state
    read = table_from_proto(table_to_proto(state.effective))
    assert TableBytes().digest(at_once.state.effective) == TableBytes().digest(read)


def rules_table(revision: int, targets: list[str]) -> RoutingTable:
    rules = (ForwardingRule(f"r{number}", ExactName(f"t{number}"), each) for number, each in enumerate(targets))
    versions = [RuleVersion(rule, float(rank), revision) for rank, rule in enumerate(rules)]
    return RoutingTable(revision, [UpstreamCluster("c1", ("127.0.0.1:1",), 1)], versions)


def test_a_table_of_other_rules_is_sent_whole() -> None:
    assert delta_between(rules_table(1, ["c1"] * MOST_CHANGES), rules_table(2, ["c2"] * MOST_CHANGES)) is None


def test_a_delta_holds_what_changes_and_nothing_else() -> None:
    before = rules_table(1, ["c1"] * 500)
    versions = [*before.versions[:-1], RuleVersion(before.versions[-1].rule, 0.5, 2)]
    after = RoutingTable(2, before.clusters.values(), versions)
    delta = delta_between(before, after)
    assert delta is not None
    assert [*delta.gone_versions] == [version_to_proto(before.versions[-1])]
    assert [*delta.come_versions] == [version_to_proto(versions[-1])]


def test_a_field_that_is_not_known_here_refuses_the_delta() -> None:
    delta = with_digests(RoutingTable(), rules_table(1, ["c1"]))
    assert delta is not None
    unknown = routing.TableDelta.FromString(delta.SerializeToString() + b"\xfa\x7f\x01x")
    reader = TableReader()
    done_at_once(reader.begin(RoutingTable()))
    try:
        done_at_once(reader.after(unknown))
    except InvalidRuleError as error:
        assert "newer release" in str(error)
    else:
        raise AssertionError("the delta was read without a part of it")
