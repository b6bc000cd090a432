"""Orders that hold deltas of tables, carried out by a gateway: a scripted router on a real gRPC connection."""

from pathlib import Path

from mesh import durations
from mesh.routing import RoutingTable
from mesh.routing.codec import table_to_proto
from mesh.routing.delta import delta_between
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import admin, discovery, routing
from services.gateway.downstream import last_table
from services.gateway.downstream.received_tables import ReceivedTables
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.test_discovery import ScriptedRouter, router

__all__ = ["router"]
APPLIED, HELD, TRYING = admin.MEMBER_PHASE_APPLIED, admin.MEMBER_PHASE_HELD, admin.MEMBER_PHASE_TRYING


def delta(before: RoutingTable, after: RoutingTable) -> routing.TableDelta:
    found = delta_between(before, after)
    assert found is not None
    found.base, found.digest = TableBytes().digest(before), TableBytes().digest(after)
    return found


def apply(router: ScriptedRouter, before: RoutingTable, after: RoutingTable) -> None:
    router.orders.put_nowait(discovery.WatchResponse(apply_delta=delta(before, after)))


async def test_the_first_delta_rests_on_the_table_on_disk_and_the_next_one_on_that(
    router: ScriptedRouter, stage: Stage, tmp_path: Path
) -> None:
    first, second, third = stage.gateway.mesh.table, stage.table(2, apples="c2"), stage.table(3, pears="c1")
    hello = router.said[0].hello
    assert (hello.reads_deltas, hello.table_digest) == (True, TableBytes().digest(first))
    apply(router, first, second)
    apply(router, second, third)
    await until(lambda: router.acks == [(2, APPLIED), (3, APPLIED)])
    assert stage.gateway.mesh.table == third
    assert last_table.load(tmp_path) == third


async def test_a_move_by_deltas_is_kept_on_disk_as_a_whole_table(
    router: ScriptedRouter, stage: Stage, tmp_path: Path
) -> None:
    """So the gateway knows the table to come after a crash, whatever table is in force then."""
    before, after = stage.gateway.mesh.table, stage.table(2, apples="c2", bananas="c2")
    hold = discovery.HoldOrder(delta=delta(before, after), timeout=durations.of_ms(5_000))
    router.orders.put_nowait(discovery.WatchResponse(hold=hold))
    await until(lambda: router.acks == [(2, HELD)])
    assert last_table.load_held(tmp_path) == after
    assert stage.gateway.mesh.table == before
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=2)))
    await until(lambda: router.acks[1:] == [(2, APPLIED)])
    assert last_table.load(tmp_path) == after


async def test_after_a_move_that_was_given_up_the_next_delta_rests_on_its_table(
    router: ScriptedRouter, stage: Stage
) -> None:
    """The table in force never was the one to come; each order rests on the order before."""
    before, given_up, after = stage.gateway.mesh.table, stage.table(2, apples="c2"), stage.table(4, bananas="c1")
    hold = discovery.HoldOrder(delta=delta(before, given_up), timeout=durations.of_ms(5_000))
    router.orders.put_nowait(discovery.WatchResponse(hold=hold))
    router.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
    apply(router, given_up, after)
    await until(lambda: (4, APPLIED) in router.acks)
    assert stage.gateway.mesh.table == after
    assert router.watches == 1


async def test_a_canary_by_deltas_and_back(router: ScriptedRouter, stage: Stage) -> None:
    before, tried = stage.gateway.mesh.table, stage.table(2, apples="c2", bananas="c2")
    canary = discovery.CanaryOrder(delta=delta(before, tried), permille=1_000)
    router.orders.put_nowait(discovery.WatchResponse(canary=canary))
    await until(lambda: router.acks == [(2, TRYING)])
    running = stage.gateway.mesh.tables.canary
    assert running is not None
    assert (running.table, running.permille) == (tried, 1_000)
    router.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
    await until(lambda: stage.gateway.mesh.tables.canary is None)
    apply(router, tried, stage.table(3, apples="c1", bananas="c2"))
    await until(lambda: router.acks[1:] == [(3, APPLIED)])
    assert stage.gateway.mesh.table == stage.table(3, apples="c1", bananas="c2")


async def test_a_delta_that_does_not_fit_is_followed_by_whole_tables_on_the_next_watch(
    router: ScriptedRouter, stage: Stage
) -> None:
    """The one after that takes deltas again."""
    elsewhere, second = stage.table(1, plums="c1"), stage.table(2, apples="c2")
    apply(router, elsewhere, second)
    await until(lambda: router.watches == 2)
    await until(lambda: len(router.hellos) == 2)
    assert not router.hellos[1].reads_deltas
    router.apply(second)
    await until(lambda: router.acks == [(2, APPLIED)])
    router.end()
    await until(lambda: len(router.hellos) == 3)
    assert router.hellos[2].table_digest == TableBytes().digest(second)


async def test_a_table_that_comes_out_otherwise_is_not_run(router: ScriptedRouter, stage: Stage) -> None:
    before, after = stage.gateway.mesh.table, stage.table(2, apples="c2")
    broken = delta(before, after)
    broken.come_versions[0].rule.target_cluster = "c1"
    router.orders.put_nowait(discovery.WatchResponse(apply_delta=broken))
    await until(lambda: len(router.hellos) == 2)
    assert stage.gateway.mesh.table == before
    assert not router.acks


async def test_after_a_table_that_cannot_be_read_whole_tables_follow(router: ScriptedRouter, stage: Stage) -> None:
    """The router goes on with a delta, for it can't know yet that the gateway has not read the table."""
    before, unread, after = stage.gateway.mesh.table, stage.table(2, apples="c2"), stage.table(3, bananas="c1")
    unreadable = delta(before, unread)
    unreadable.come_versions[0].rule.match.topic_regex = "("
    router.orders.put_nowait(discovery.WatchResponse(apply_delta=unreadable))
    await until(lambda: [revision for revision, _ in router.nacks] == [2])
    apply(router, unread, after)
    await until(lambda: len(router.hellos) == 2)
    router.apply(after)
    await until(lambda: router.acks == [(3, APPLIED)])
    assert stage.gateway.mesh.table == after


async def test_a_whole_table_in_parts_and_a_delta_behind_it(
    router: ScriptedRouter, stage: Stage, tmp_path: Path
) -> None:
    assert router.said[0].hello.reads_parts
    second, third = stage.table(2, apples="c2", pears="c1"), stage.table(3, apples="c1")
    revision, *parts = TableBytes().pieces(second)
    for part in parts:
        router.orders.put_nowait(discovery.WatchResponse(part=routing.RoutingTable.FromString(part)))
    router.apply(routing.RoutingTable.FromString(revision))
    await until(lambda: router.acks == [(2, APPLIED)])
    assert stage.gateway.mesh.table == second
    assert last_table.load(tmp_path) == second
    apply(router, second, third)
    await until(lambda: router.acks[1:] == [(3, APPLIED)])
    assert stage.gateway.mesh.table == third


async def test_parts_of_a_table_that_a_lost_router_has_not_ended_are_forgotten(
    router: ScriptedRouter, stage: Stage
) -> None:
    lost, second = stage.table(7, apples="c2"), stage.table(2, pears="c2")
    router.orders.put_nowait(discovery.WatchResponse(part=table_to_proto(lost)))
    router.end()
    await until(lambda: router.watches == 2)
    router.apply(second)
    await until(lambda: router.acks == [(2, APPLIED)])
    assert stage.gateway.mesh.table == second


async def test_a_gateway_without_a_table_forgets_the_parts_of_a_lost_router(stage: Stage) -> None:
    received, lost, second = ReceivedTables(), stage.table(7, apples="c2"), stage.table(2, pears="c2")
    await received.begin(RoutingTable())
    await received.part(table_to_proto(lost))
    assert await received.begin(RoutingTable()) == b""
    assert await received.read(table_to_proto(second)) == second
