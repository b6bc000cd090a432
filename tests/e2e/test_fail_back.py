"""A cluster has failed over under load and comes back: its topics come back, with the records that only it had."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from mesh import durations
from mesh.rpc import drains, fail_backs, fail_backs_grpc, standbys
from tests.e2e.test_drains import Reader
from tests.e2e.test_fail_over import (
    RECORDS,
    doomed,
    ends_of,
    fail_over,
    mesh_of,
    read_all,
    shown_when,
    stand_by,
    writing,
)
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.two_of_everything import CALL_S, NOT_NOW, TwoOfEverything
from tests.fixtures.waiting import until

__all__ = ["doomed"]

WITHIN_S = 120.0
NAME = "failbacks/c2"
SLOW = 4_000
"""Bytes a second of a copy that stays behind its source."""
BUDGET_MS = 5000
"""The machine of the tests is busy: a second may be too short for a cut."""

FailBack = fail_backs.FailBack


async def asked(mesh: TwoOfEverything, method: str, request: Any, is_so: Callable[[FailBack], bool] = bool) -> FailBack:
    """The answer of the control that leads, when it is so."""
    found: list[FailBack] = []

    async def answers() -> bool:
        for channel in mesh.channels:
            try:
                answer = await getattr(fail_backs_grpc.FailBackServiceStub(channel), method)(request, timeout=CALL_S)
            except grpc.aio.AioRpcError as error:
                assert error.code() in (*NOT_NOW, grpc.StatusCode.NOT_FOUND), f"{error.code()}: {error.details()}"
                print(error.details())
            else:
                if is_so(answer):
                    found.append(answer)
                    return True
        return False

    await until(answers, f"{method} is answered", WITHIN_S)
    return found[0]


async def begin(mesh: TwoOfEverything, strays: fail_backs.StrayPolicy.ValueType) -> FailBack:
    moves = drains.DrainSpec(hold_budget=durations.of_ms(BUDGET_MS), cuts_at_most=50)
    spec = fail_backs.FailBackSpec(cluster="c2", strays=strays, moves=moves)
    request = fail_backs.StartFailBackRequest(spec=spec, request_id=str(uuid.uuid4()))
    return await asked(mesh, "StartFailBack", request)


async def shown_back_when(mesh: TwoOfEverything, is_so: Callable[[FailBack], bool]) -> FailBack:
    return await asked(mesh, "GetFailBack", fail_backs.GetFailBackRequest(name=NAME), is_so)


async def ended(mesh: TwoOfEverything) -> FailBack:
    return await shown_back_when(mesh, lambda found: found.HasField("end_time"))


async def is_away(mesh: TwoOfEverything, gateway: str) -> bool:
    """Whether no router hears the gateway."""
    members = (await mesh.status()).members
    return any(each.name == f"members/{gateway}" and each.left_behind for each in members)


async def all_have_heard(mesh: TwoOfEverything) -> None:
    """Until a plan says that each gateway runs the rules of the fail-over."""
    request = fail_backs.StartFailBackRequest(spec=fail_backs.FailBackSpec(cluster="c2"), validate_only=True)
    await asked(mesh, "StartFailBack", request, lambda found: not found.problem)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("strays", ["topic", "append"])
async def test_a_cluster_gets_its_topics_back_with_each_acknowledged_record_once(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    strays: str,
) -> None:
    topic = unique_name(f"back-{strays}")
    policy = {"topic": fail_backs.STRAY_POLICY_TOPIC, "append": fail_backs.STRAY_POLICY_APPEND}[strays]
    beside: list[str] = []
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        first, second = (each.address for each in mesh.gateways)
        reader = Reader(second, f"{topic}.group", [topic])
        with reader.running():
            async with writing(topic, first, second) as writers:
                await stand_by(mesh, topic, bytes_per_second=SLOW)
                await shown_when(mesh, lambda found: any(each.partitions for each in found.topics))
                for writer in writers:
                    await writer.goes_on(RECORDS)
                doomed.kill()
                standby = await fail_over(mesh)
                for writer in writers:
                    await writer.goes_on(RECORDS)
                doomed.start()
                await begin(mesh, policy)
                end = await ended(mesh)
                for writer in writers:
                    await writer.goes_on(RECORDS)
            stored = {value for writer in writers for value in writer.stored}
            there = await asyncio.to_thread(read_all, doomed.bootstrap, topic)
            if strays == "topic":
                beside = await asyncio.to_thread(read_all, kafka_c1.bootstrap, f"{topic}.strays")
            await until(lambda: there[-1] in {value for *_, value in reader.read}, "the group reads on", WITHIN_S)
        [back] = end.topics
        told = sum(each.strays for each in back.partitions)
        resent = sum(each.resent for each in back.partitions)
        print(f"{sum(each.lag_records for each in standby.topics)} lost, {told} strays, {resent} sent again: {end}")
        assert (end.state, back.state) == (fail_backs.FAIL_BACK_STATE_DONE, fail_backs.FAIL_BACK_TOPIC_STATE_MOVED)
        assert [writer.faults for writer in writers] == [[], []]
        assert reader.faults == []
        assert told > 0
        once = Counter([*there, *beside])
        assert {value for value in stored if not once[value]} == set(), "lost"
        assert {value for value, times in once.items() if times > 1} == set(), "doubled"
        assert len(beside) == (told if strays == "topic" else 0)


@asynccontextmanager
async def cut_off(mesh: TwoOfEverything) -> AsyncIterator[None]:
    """Gateway g2 has no router, and goes on to serve by its last table."""
    async with mesh.without_link("g2-router0"), mesh.without_link("g2-router1"):
        yield


@asynccontextmanager
async def frozen(mesh: TwoOfEverything) -> AsyncIterator[None]:
    """Gateway g2 stands still."""
    os.kill(mesh.gateways[1].pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(mesh.gateways[1].pid, signal.SIGCONT)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", [cut_off, frozen])
async def test_records_that_gateways_wrote_to_the_cluster_before_they_heard_of_the_fail_over_come_back(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    trouble: Callable[[TwoOfEverything], AbstractAsyncContextManager[None]],
) -> None:
    topic = unique_name("fenced")
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        first, second = (each.address for each in mesh.gateways)
        async with writing(topic, first, second) as writers:
            await stand_by(mesh, topic)
            await shown_when(mesh, lambda found: any(each.HasField("lag") for each in found.topics))
            for writer in writers:
                await writer.goes_on(RECORDS)
            async with trouble(mesh):
                doomed.kill()
                failing_over = asyncio.create_task(fail_over(mesh))
                await shown_when(mesh, lambda found: found.state == standbys.STANDBY_STATE_FAILING_OVER)
                doomed.start()
                for writer in writers if trouble is cut_off else writers[:1]:
                    await writer.goes_on(RECORDS)
            await failing_over
            await all_have_heard(mesh)
            for writer in writers:
                await writer.goes_on()
            before = await asyncio.to_thread(ends_of, doomed.bootstrap, topic)
            for writer in writers:
                await writer.goes_on(RECORDS)
            assert await asyncio.to_thread(ends_of, doomed.bootstrap, topic) == before, "somebody wrote there"
            async with cut_off(mesh):
                await until(lambda: is_away(mesh, "g2"), "g2 is away", WITHIN_S)
                await begin(mesh, fail_backs.STRAY_POLICY_TOPIC)
                waiting = await shown_back_when(mesh, lambda found: bool(found.problem))
                assert "may still write to 'c2': g2 has not been heard of" in waiting.problem
                assert [each.state for each in waiting.topics] == [fail_backs.FAIL_BACK_TOPIC_STATE_WAITING]
            end = await ended(mesh)
        stored = {value for writer in writers for value in writer.stored}
        there = await asyncio.to_thread(read_all, doomed.bootstrap, topic)
        beside = await asyncio.to_thread(read_all, kafka_c1.bootstrap, f"{topic}.strays")
        [back] = end.topics
        strays = sum(each.strays for each in back.partitions)
        print(f"{strays} strays, {sum(each.resent for each in back.partitions)} sent again")
        assert (end.state, back.state) == (fail_backs.FAIL_BACK_STATE_DONE, fail_backs.FAIL_BACK_TOPIC_STATE_MOVED)
        assert [writer.faults for writer in writers] == [[], []]
        assert strays == len(beside) >= (RECORDS if trouble is cut_off else 0)
        once = Counter([*there, *beside])
        assert {value for value in stored if not once[value]} == set(), "lost"
        assert {value for value, times in once.items() if times > 1} == set(), "doubled"
