"""Replays over gRPC that members carry out: each an event in the log, given to a member that is there, resumed by the
next, watched, cancelled.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

import grpc
import psycopg
import pytest

from mesh import durations
from mesh.rpc import admin, events, replays
from services.control.decisions.replays import commands as decisions
from services.control.steady_clock import steady_clock
from services.control.verify_log import VerifySettings, verify
from tests.integration.control.replays import (
    CANCELLED,
    DONE,
    FAILED,
    RUNNING,
    Member,
    cancel,
    ended,
    part,
    replay_now,
    start,
    to_backend,
)
from tests.integration.control.sidecar import YOUNGER, Sidecar
from tests.integration.control.world import CALL, World, refused, until


@pytest.fixture
async def s1(world: World) -> Member:
    """A sidecar whose reactive consumer reads orders."""
    return await reactive(world, "s1")


async def reactive(world: World, name: str, *topics: str) -> Member:
    sidecar = Sidecar(world, name)
    await sidecar.beats()
    await sidecar.holds(f"billing.{name}", topics=topics or ("orders",), kind=events.INSTANCE_KIND_REACTIVE)
    return Member(world, name)


async def told(world: World, replay: replays.Replay) -> list[str]:
    """Its history in words, newest first, without its id."""
    response = await world.decisions.ListHistory(admin.ListHistoryRequest(name=replay.name), timeout=CALL)
    short = replay.name.removeprefix("replays/")
    return [sentence.replace(short, "R") for entry in response.entries for sentence in entry.changes]


async def is_written(world: World, replay: replays.Replay) -> None:
    """How far it is, is stored."""
    await until(lambda: replay.name in world.control.reports.known.progress, "how far it is, is stored")


async def test_a_replay_is_carried_out_by_a_member_that_is_there_and_every_decision_is_an_event(
    world: World, s1: Member, database: str
) -> None:
    async with s1.follows() as given:
        replay = await start(world, to_backend(rate=100), reason="the tax was wrong", request_id=str(uuid.uuid4()))
        told_to_do = await given.next()
        assert (told_to_do.name, told_to_do.member, told_to_do.state) == (replay.name, "members/s1", RUNNING)
        assert told_to_do.spec.backend.group == f"replay-{replay.name.removeprefix('replays/')}"
        assert (told_to_do.actor, told_to_do.reason) == ("ada", "the tax was wrong")
        await s1.reports(replay, RUNNING, part(0))
        await is_written(world, replay)
        await s1.reports(replay, RUNNING, part(700, 690))
        shown = await replay_now(world, replay)
        assert [(each.position, each.records) for each in shown.partitions] == [(700, 690)]
        await s1.reports(replay, DONE, part(1000, 985, failed=5), description="all of it")
        await s1.reports(replay, DONE)  # said again: nothing new
    done = await replay_now(world, replay)
    assert (done.state, done.description, done.partitions[0].failed) == (DONE, "all of it", 5)
    assert done.HasField("end_time")
    assert await told(world, replay) == [
        "replay R done: all of it",
        "replay R is carried out by s1",
        "replay R: orders from the first record to a backend at 100 records a second",
    ]
    kinds = [each.WhichOneof("payload") for each in await world.history(stream=replay.name)]
    assert kinds == ["replay_ended", "replay_assigned", "replay_started"]
    audit = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    assert {each.method.rpartition("/")[2] for each in audit.audit_events} == {"RegisterInstance", "StartReplay"}
    with psycopg.connect(database) as connection:
        row = connection.execute("select name, destination, state, member, records, failed, actor from replays")
        assert row.fetchall() == [(replay.name, "backend", "done", "members/s1", 985, 5, "ada")]
    settings = VerifySettings(database_url=world.settings.database_url)
    report = await asyncio.to_thread(verify, settings, with_kafka=False)
    assert (report.differences, report.rows["replays"]) == ([], 1)


async def test_the_answer_has_the_plan_and_a_dry_run_its_counts(world: World, s1: Member) -> None:
    async with s1.follows() as given:
        asked = world.replays.StartReplay(
            replays.StartReplayRequest(spec=to_backend(dry_run=True), wait=durations.of_ms(20_000)), timeout=CALL
        )
        replay = await given.next()
        assert replay.spec.dry_run
        await s1.reports(replay, RUNNING, part(0))
        await s1.reports(replay, DONE, part(0, planned=640), description="640 records")
        answer = await asked
    assert (answer.state, answer.partitions[0].planned, answer.description) == (DONE, 640, "640 records")


async def test_what_nobody_takes_says_what_it_waits_for(world: World, s1: Member) -> None:
    anyone = await start(world, to_backend())
    assert anyone.description == (
        "waits for a member: none follows its replays; start a sidecar that is linked to control"
    )
    named = await start(world, to_backend(sidecar="s1"))
    assert named.description.startswith("waits for sidecar 's1', which does not follow its replays")
    other = await reactive(world, "s2", "returns")
    async with other.follows():
        waiting = await replay_now(world, anyone)
        assert (waiting.state, waiting.description) == (
            replays.REPLAY_STATE_PENDING,
            "waits for a member that can do it: s2 has no reactive consumer of orders",
        )
    async with s1.follows() as given:
        assert {(await given.next()).name, (await given.next()).name} == {anyone.name, named.name}
    nobody = await refused(start(world, to_backend(sidecar="s9")), grpc.StatusCode.NOT_FOUND, "no sidecar 's9'")
    assert "known: s1, s2" in (nobody.details() or "")


async def test_a_member_that_dies_is_followed_by_the_next_that_can_where_it_was(
    world: World, s1: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "COMING_BACK", 0.0)
    s2 = await reactive(world, "s2")
    async with s1.follows() as first:
        replay = await start(world, to_backend())
        named = await start(world, to_backend(sidecar="s1"))
        assert [(await first.next()).name for _ in range(2)] == [replay.name, named.name]
        await s1.reports(replay, RUNNING, part(0), part(0, partition=1))
        await s1.reports(replay, RUNNING, part(400, 400))
    async with s2.follows() as second:
        world.control.replay_followers.clock = lambda: steady_clock() + timedelta(seconds=30)
        resumed = await second.next()
        assert (resumed.name, resumed.member) == (replay.name, "members/s2")
        assert [(each.partition, each.position) for each in resumed.partitions] == [(0, 400), (1, 0)]
        text = "'members/s2' carries it out; 's1' has to drop it"
        await refused(s1.reports(replay, RUNNING, part(500, 500)), grpc.StatusCode.FAILED_PRECONDITION, text)
        waiting = await replay_now(world, named)  # its sidecar was named: it waits for that one
        assert (waiting.member, waiting.description) == (
            "members/s1",
            "s1 carries it out and does not follow its replays just now: it goes on when that is back",
        )
    async with s1.follows() as again:
        assert (await again.next()).name == named.name


async def test_a_control_that_starts_anew_knows_everything(world: World, s1: Member) -> None:
    async with s1.follows() as given:
        replay = await start(world, to_backend())
        await given.next()
        await s1.reports(replay, RUNNING, part(300, 300))
        await is_written(world, replay)
    pending = await start(world, to_backend("returns"))
    await world.stop()
    await world.start()
    assert (await replay_now(world, replay)).partitions[0].position == 300
    listed = await world.replays.ListReplays(replays.ListReplaysRequest(page_size=1), timeout=CALL)
    assert [each.name for each in listed.replays] == [pending.name]
    rest = replays.ListReplaysRequest(page_size=1, page_token=listed.next_page_token)
    assert [each.name for each in (await world.replays.ListReplays(rest, timeout=CALL)).replays] == [replay.name]
    async with s1.follows() as given:
        resumed = await given.next()
        assert (resumed.name, resumed.partitions[0].position) == (replay.name, 300)
        await s1.reports(replay, FAILED, description="the backend is gone")
    assert (await replay_now(world, replay)).description == "the backend is gone"
    only_open = await world.replays.ListReplays(replays.ListReplaysRequest(open_only=True), timeout=CALL)
    assert [each.name for each in only_open.replays] == [pending.name]


async def test_a_replay_is_watched_until_it_ends(world: World, s1: Member) -> None:
    async with s1.follows() as given:
        replay = await start(world, to_backend())
        watching = world.replays.WatchReplay(replays.WatchReplayRequest(name=replay.name), timeout=CALL)
        await given.next()
        await s1.reports(replay, RUNNING, part(10, 10))
        seen: list[replays.Replay] = []
        async for each in watching:
            seen.append(each)
            if each.partitions and each.state == RUNNING:
                await s1.reports(replay, DONE, part(1000, 1000))
    positions = [each.partitions[0].position for each in seen if each.partitions]
    assert list(dict.fromkeys(positions)) == [10, 1000]  # how far it is may be seen before its end is in the log
    assert [each.state for each in seen][-1] == DONE
    unknown = world.replays.WatchReplay(replays.WatchReplayRequest(name="replays/none"), timeout=CALL)
    await refused(unknown.read(), grpc.StatusCode.NOT_FOUND, "never begun, or so old that only the log tells of it")


async def test_a_replay_is_cancelled_by_its_member_or_at_once_where_it_has_none(world: World, s1: Member) -> None:
    waiting = await start(world, to_backend("returns"))
    assert (await cancel(world, waiting)).state == CANCELLED
    async with s1.follows() as given:
        replay = await start(world, to_backend())
        assert not (await given.next()).cancelling
        request_id = str(uuid.uuid4())
        assert (await cancel(world, replay, reason="enough", request_id=request_id)).cancelling
        await cancel(world, replay)  # once more: no second event
        again = await given.next()
        assert (again.name, again.cancelling) == (replay.name, True)
        await s1.reports(replay, CANCELLED, part(500, 500), description="at offset 500")
    assert (await replay_now(world, replay)).description == "at offset 500"
    text = "is cancelled already: at offset 500"
    await refused(cancel(world, replay), grpc.StatusCode.FAILED_PRECONDITION, text)
    kinds = [each.WhichOneof("payload") for each in await world.history(stream=replay.name)]
    assert kinds == ["replay_ended", "replay_cancel_ordered", "replay_assigned", "replay_started"]


async def test_what_is_cancelled_ends_though_its_member_is_gone(
    world: World, s1: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "COMING_BACK", 0.0)
    async with s1.follows() as given:
        replay = await start(world, to_backend(sidecar="s1"))
        await given.next()
    world.control.replay_followers.clock = lambda: steady_clock() + timedelta(seconds=30)
    await cancel(world, replay)
    assert (await ended(world, replay)).description == (
        "s1 did not say where it stopped; what its group has committed in Kafka is where"
    )


async def test_of_two_processes_of_a_member_the_younger_is_told(world: World, s1: Member) -> None:
    async with s1.follows() as elder, Member(world, "s1", YOUNGER).follows() as younger:
        with pytest.raises(grpc.aio.AioRpcError, match="this one shall drop those that it carries out"):
            await elder.next()
        replay = await start(world, to_backend())
        assert (await younger.next()).name == replay.name


async def test_a_frozen_mesh_takes_no_new_replay_and_lets_those_go_on_that_run(world: World, s1: Member) -> None:
    async with s1.follows() as given:
        replay = await start(world, to_backend())
        await given.next()
        await world.changes.Freeze(admin.FreezeRequest(reason="inventory"), timeout=CALL)
        await refused(start(world, to_backend()), grpc.StatusCode.FAILED_PRECONDITION, "froze the mesh")
        counted = await start(world, to_backend(dry_run=True))
        assert (await given.next()).name == counted.name
        await s1.reports(counted, DONE, part(0, planned=3))
        await s1.reports(replay, RUNNING, part(10, 10))
        await cancel(world, replay)
        await s1.reports(replay, CANCELLED)
    assert (await replay_now(world, replay)).state == CANCELLED


async def test_a_request_id_starts_one_replay(world: World, s1: Member) -> None:
    request_id = str(uuid.uuid4())
    first = await start(world, to_backend(), request_id=request_id)
    assert (await start(world, to_backend(), request_id=request_id)).name == first.name
    await refused(start(world, to_backend("returns"), request_id=request_id), grpc.StatusCode.INVALID_ARGUMENT)
    bad = replays.ReplaySpec(ranges=[replays.ReplayRange(topic="orders", partition=0, start_offset=9, end_offset=9)])
    bad.backend.SetInParent()
    error = await refused(start(world, bad), grpc.StatusCode.INVALID_ARGUMENT)
    assert error.details() == "spec.ranges[0].end_offset: 9 is not behind start_offset 9; it is exclusive"
