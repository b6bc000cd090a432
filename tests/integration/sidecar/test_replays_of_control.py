"""Replays that control orders are carried out by sidecars, and those that are asked for here are known to control."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from mesh import durations
from mesh.rpc import replays
from services.control.decisions.replays import commands as decisions
from services.control.steady_clock import steady_clock
from services.sidecar.control import replay_follower
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import CALL, World, until
from tests.integration.sidecar.dead_letter_world import ended, fail, job, start
from tests.integration.sidecar.world import Kafka, SidecarWorld, started_here


@pytest.fixture
async def control(
    postgres: PostgresServer, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(decisions, "COMING_BACK", 0.0)
    monkeypatch.setattr(replay_follower, "REPORT_SECONDS", 0.1)
    monkeypatch.setattr(replay_follower, "MAX_PAUSE_SECONDS", 0.3)
    database = await asyncio.to_thread(postgres.migrated)
    async with World(database, kafka_c1.bootstrap, unique_name("control-events")) as world:
        yield world


def settings(control: World, name: str) -> dict[str, Any]:
    return {"control_addresses": f"127.0.0.1:{control.control.port}", "name": name, "max_job_round_bytes": 4}


async def known(control: World, name: str) -> replays.Replay:
    return await control.replays.GetReplay(replays.GetReplayRequest(name=name), timeout=CALL)


async def follows(control: World, *names: str) -> None:
    def all_follow() -> bool:
        return set(names) <= {each.member for each in control.control.replay_followers.candidates()}

    await until(all_follow, f"{', '.join(names)} follow their replays")


def to_source(topic: str, **fields: Any) -> replays.StartReplayRequest:
    spec = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic=topic)], dead_letters=True, source=replays.ReplayToSource(), **fields
    )
    return replays.StartReplayRequest(spec=spec, reason="a test", wait=durations.of_ms(1))


@pytest.fixture
def source(kafka: Kafka, topic: str) -> str:
    kafka.create(topic, partitions=1)
    kafka.create(f"{topic}.dlq", partitions=1)
    fail(kafka, topic, *({"value": b"%d" % n, "key": b"k"} for n in range(20)))
    return topic


async def test_one_sidecar_goes_on_where_another_was_and_nothing_comes_twice(
    control: World, kafka: Kafka, source: str
) -> None:
    run = asyncio.to_thread
    async with started_here(kafka.bootstrap, **settings(control, "second")):
        async with started_here(kafka.bootstrap, **settings(control, "first")):
            await follows(control, "first", "second")
            replay = await control.replays.StartReplay(to_source(source, rate=2), timeout=CALL)

            async def is_begun() -> bool:
                return sum(one.records for one in (await known(control, replay.name)).partitions) > 2

            await until(is_begun, "some records are written")
            assert (await known(control, replay.name)).member == "members/first"
        control.control.replay_followers.clock = lambda: steady_clock() + timedelta(seconds=30)

        async def has_ended() -> bool:
            return (await known(control, replay.name)).state == replays.REPLAY_STATE_DONE

        await until(has_ended, "the other one has done the rest", within=200.0)
        done = await known(control, replay.name)
    assert (done.member, done.partitions[0].records, done.description) == ("members/second", 20, "20 records")
    assert [one.value for one in await run(kafka.read, source, None)] == [b"%d" % n for n in range(20)]


async def test_what_is_asked_for_over_http_is_known_to_control_and_cancelled_there(
    control: World, kafka: Kafka, source: str
) -> None:
    run = asyncio.to_thread
    async with started_here(kafka.bootstrap, **settings(control, "only")) as sidecar:
        await follows(control, "only")
        begun = await run(_slow_job, sidecar, source)
        assert begun["byControl"] is True
        name = f"replays/{begun['id']}"

        async def has_begun() -> bool:
            return bool((await run(job, sidecar, begun["id"]))["records"])

        await until(has_begun, "it has begun")
        await control.replays.CancelReplay(replays.CancelReplayRequest(name=name), timeout=CALL)
        here = await run(ended, sidecar, begun["id"])
        assert here["state"] == "cancelled"

        async def is_told() -> bool:
            return (await known(control, name)).state == replays.REPLAY_STATE_CANCELLED

        await until(is_told, "control knows its end")
        told = await known(control, name)
        assert told.partitions[0].records == here["records"]


def _slow_job(sidecar: SidecarWorld, source: str) -> Any:
    return start(sidecar, ranges=[{"topic": source}], deadLetters=True, to="source", rate=1)
