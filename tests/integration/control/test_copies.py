"""Copies and profiles over gRPC: placed by control, carried out by a member that follows as a pipeline does, kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import grpc
import psycopg
import pytest

from mesh.rpc import admin, profiles, profiles_grpc, record_rules, record_rules_grpc, replays, routing
from services.control.decisions.replays import commands as decisions
from services.control.steady_clock import steady_clock
from services.control.verify_log import VerifySettings, verify
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.replays import CANCELLED, DONE, RUNNING, Given, Member, cancel, part, replay_now, start
from tests.integration.control.world import CALL, World, create_topic, refused, until

WIDE = 3000
PIPELINE = ("topic", "profile")


def copy(source: str, target: str = "", *, dry_run: bool = False, **said: str) -> replays.ReplaySpec:
    wanted = replays.ReplayToTopic(topic=target, **said)  # type: ignore[arg-type]  # texts alone are said here
    return replays.ReplaySpec(ranges=[replays.ReplayRange(topic=source)], topic=wanted, dry_run=dry_run)


def wide(topic: str, position: int, *numbers: int) -> list[replays.ReplayPartition]:
    """Partitions of 1000 records each; all of them, where none are named."""
    return [part(position, position, number, topic=topic) for number in numbers or range(WIDE)]


async def test_a_copy_of_many_partitions_is_placed_carried_out_handed_on_and_cancelled(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str],
    database: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    world, orders = mesh_of_two, unique_name("roomO-orders")
    again = f"{orders}-again"
    monkeypatch.setattr(decisions, "COMING_BACK", 0.0)
    nowhere = f"spec.ranges[0].topic: topic '{orders}' lives nowhere"
    await refused(start(world, copy(orders, again, cluster="c2")), grpc.StatusCode.INVALID_ARGUMENT, nowhere)
    create_topic(kafka_c1.bootstrap, orders, 2)
    await world.set(orders, "c1")
    absent = f"spec.topic.topic: topic '{again}' does not exist on cluster 'c2'; create it"
    await refused(start(world, copy(orders, again, cluster="c2")), grpc.StatusCode.INVALID_ARGUMENT, absent)
    create_topic(kafka_c2.bootstrap, again, 2)
    await refused(start(world, copy(orders, again, cluster="c9")), grpc.StatusCode.INVALID_ARGUMENT, "known: c1, c2")
    sidecar, p1, p2 = Member(world, "s1"), Member(world, "p1"), Member(world, "p2")
    async with sidecar.follows():
        waiting = await start(world, copy(orders, again, cluster="c2"))
        text = "waits for a pipeline: none follows its replays; start `kafka-mesh pipeline serve`"
        assert waiting.description == text
    async with p1.follows(*PIPELINE) as given:
        told = await given.next()
        assert (told.name, told.member) == (waiting.name, "members/p1")
        assert told.spec.topic.group == f"mesh-replay-{told.name.removeprefix('replays/')}"
        assert [(each.topic, each.cluster, each.upstream_topic) for each in told.places] == [(orders, "c1", orders)]
        await p1.reports(told, RUNNING, *wide(orders, 0))
        await p1.reports(told, RUNNING, *wide(orders, 400, 7, 8))
        watching = world.replays.WatchReplay(replays.WatchReplayRequest(name=told.name, partitions=True), timeout=CALL)
        first = await watching.read()
        assert isinstance(first, replays.Replay)
        assert (len(first.partitions), first.totals.records, first.totals.partitions) == (WIDE, 800, WIDE)
        await p1.reports(told, RUNNING, *wide(orders, 1000, 8))
        changed = await watching.read()
        assert isinstance(changed, replays.Replay)
        assert [(each.partition, each.position) for each in changed.partitions] == [(8, 1000)]
        assert (changed.totals.records, changed.totals.partitions_done) == (1400, 1)
        watching.cancel()
        [listed] = (await world.replays.ListReplays(replays.ListReplaysRequest(), timeout=CALL)).replays
        assert (len(listed.partitions), listed.totals) == (0, changed.totals)
        assert listed.ByteSize() < 500
    async with p2.follows(*PIPELINE) as given:
        world.control.replay_followers.clock = lambda: steady_clock() + timedelta(seconds=30)
        resumed = await given.next()
        assert (resumed.name, resumed.member, len(resumed.partitions)) == (told.name, "members/p2", WIDE)
        assert resumed.partitions[7].position == 400
        assert (await cancel(world, told)).cancelling
        assert (await given.next()).cancelling
        await p2.reports(told, CANCELLED, *wide(orders, 500, 7), description="1500 of them")
    ended = await replay_now(world, told)
    assert (ended.state, ended.totals.records, len(ended.partitions)) == (CANCELLED, 1500, WIDE)
    with psycopg.connect(database) as connection:
        row = connection.execute("select destination, state, member, records from replays")
        assert row.fetchall() == [("topic", "cancelled", "members/p2", 1500)]
    settings = VerifySettings(database_url=world.settings.database_url)
    report = await asyncio.to_thread(verify, settings, with_kafka=False)
    assert report.differences == []
    again_asked = await start(world, ended.spec)  # with the same group: it goes on
    assert (len(again_asked.partitions), again_asked.partitions[7].position) == (WIDE, 500)
    await refused(start(world, ended.spec), grpc.StatusCode.FAILED_PRECONDITION, f"{again_asked.name} keeps in group")


async def test_a_dry_run_of_a_copy_is_counted_by_a_pipeline(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    """Of a topic that is named with its cluster, to the same name on the other one."""
    world, orders, p1 = mesh_of_two, unique_name("roomO-orders"), Member(mesh_of_two, "p1")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, orders, 1)
    async with p1.follows(*PIPELINE) as given:
        asked = start(world, copy(orders, cluster="c2", source_cluster="c1", dry_run=True), wait_ms=20_000)
        answer = asyncio.create_task(asked)
        replay = await given.next()
        assert (replay.spec.topic.topic, list(replay.places)) == ("{topic}", [])
        await p1.reports(replay, DONE, part(0, topic=orders, planned=640))
        counted = await answer
    assert (counted.state, counted.totals.planned) == (DONE, 640)


async def test_the_last_profile_of_a_topic_is_kept_and_dry_runs_warn_by_it(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    world, orders, p1 = mesh_of_two, unique_name("roomO-orders"), Member(mesh_of_two, "p1")
    create_topic(kafka_c1.bootstrap, orders, 1)
    create_topic(kafka_c2.bootstrap, orders, 1, **{"max.message.bytes": "2000", "cleanup.policy": "compact"})
    await world.set(orders, "c1")
    known = profiles.GetTopicProfileRequest(name=f"topics/{orders}")
    service = profiles_grpc.ProfileServiceStub(world.channel)
    text = f"`meshctl topic profile {orders}` does it"
    await refused(service.GetTopicProfile(known, timeout=CALL), grpc.StatusCode.NOT_FOUND, text)
    async with p1.follows(*PIPELINE) as given:
        spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic=orders)], profile=replays.ReplayToProfile())
        replay = await start(world, spec)
        assert [each.topic for each in (await given.next()).places] == [orders]
        found = profiles.TopicProfile(topic=orders, cluster="c1", records=10, null_keys=1)
        found.values.largest = 5000
        found.time.GetCurrentTime()
        report = replays.ReportReplayRequest(name=replay.name, member="p1", state=DONE, profiles=[found])
        await world.replays.ReportReplay(report, timeout=CALL)
    assert await service.GetTopicProfile(known, timeout=CALL) == found
    assert list((await replay_now(world, replay)).profiles) == [found]
    await world.stop()  # in order: it leaves a snapshot
    await world.start()
    world.control.members.ever_reported = True
    service = profiles_grpc.ProfileServiceStub(world.channel)
    assert await service.GetTopicProfile(known, timeout=CALL) == found
    edit = admin.RuleEdit(set=admin.SetRuleRequest(match=routing.RuleMatch(topic=orders), target_cluster="c2"))
    dry = await world.rules.DryRun(admin.DryRunRequest(edits=[edit]), timeout=CALL)
    kinds = {each.kind for each in dry.findings if each.subject == orders}
    assert kinds >= {
        admin.FINDING_KIND_RECORDS_TOO_LARGE, admin.FINDING_KIND_KEYS_MISSING, admin.FINDING_KIND_PROFILE
    }  # fmt: skip
    mirror = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=orders)
    rule = record_rules.RecordRuleSpec(record_rule_id="roomo", mirror=mirror)
    options = record_rules.RecordRuleOptions(validate_only=True)
    checked = await record_rules_grpc.RecordRuleServiceStub(world.channel).CreateRecordRule(
        record_rules.CreateRecordRuleRequest(record_rule=rule, options=options), timeout=CALL
    )
    assert "values of up to 5000 bytes, and max.message.bytes=2000 on 'c2'" in "\n".join(checked.warnings)


async def test_a_pipeline_gets_as_many_as_it_says(
    mesh_of_two: World, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    world, orders = mesh_of_two, unique_name("roomO-orders")
    create_topic(kafka_c1.bootstrap, orders, 1)
    await world.set(orders, "c1")
    await refused(_follow(world, -1).next(), grpc.StatusCode.INVALID_ARGUMENT, "max_running: -1 is not from 0 (5) to")
    given = _follow(world, 1)
    await until(lambda: bool(world.control.replay_followers.candidates()), "p1 is there")
    spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic=orders)], profile=replays.ReplayToProfile())
    first, second = await start(world, spec), await start(world, spec)
    assert (await given.next()).name == first.name
    waiting = await replay_now(world, second)
    assert waiting.description == "waits for its turn: p1 carries out 1, and no more at a time"
    await Member(world, "p1").reports(first, DONE)
    assert (await given.next()).name == second.name
    given.call.cancel()


def _follow(world: World, max_running: int) -> Given:
    request = replays.FollowReplaysRequest(
        member="p1", incarnation=Member(world).incarnation, destinations=PIPELINE, max_running=max_running
    )
    return Given(world.replays.FollowReplays(request))
