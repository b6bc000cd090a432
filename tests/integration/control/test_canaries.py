"""Canaries over real report streams: tried by some, then for everybody, given up, or ended by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from mesh.rpc import admin, events, routing
from services.control import process
from services.control.steady_clock import SteadyClock
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, Router, World, refused, until

TRYING, APPLIED = admin.MEMBER_PHASE_TRYING, admin.MEMBER_PHASE_APPLIED


@asynccontextmanager
async def gateways(world: World, *names: str) -> AsyncIterator[Router]:
    router = Router(world, *names)
    await router.connect()
    try:
        yield router
    finally:
        router.close()


async def begin(world: World, router: Router, *names: str, software: str = "sarama/", **canary: Any) -> int:
    """A rule about client software that these gateways try."""
    call = asyncio.ensure_future(
        world.set_rule(
            {"client_software_prefix": software},
            {"node_view": routing.NODE_VIEW_SINGLE},
            canary=events.Canary(**{"members": names, "duration": timedelta(minutes=1), **canary}),
        )
    )
    view = world.control.journal
    await until(lambda: view.view.rollout is not None or call.done(), "the canary begins")
    revision = view.view.rollout.position if view.view.rollout else 0
    for name in names:
        await router.answers(name, revision, TRYING)
    answer: admin.RuleChangeResponse = await call
    assert answer.revision == revision
    assert "try it for" in answer.warnings[-1]
    return revision


async def outcome(world: World) -> events.Event:
    """The end of the canary."""
    await until(lambda: world.control.journal.view.rollout is None, "the canary has ended")
    [last] = await world.history(page_size=1)
    return last


async def test_what_some_have_tried_without_trouble_is_for_everybody(mesh_of_two: World) -> None:
    async with gateways(mesh_of_two, "g1", "g2") as router:
        revision = await begin(mesh_of_two, router, "g1", duration=timedelta(seconds=6), permille=100)
        assert (await mesh_of_two.status()).pending_revision == revision

        last = await outcome(mesh_of_two)

    assert last.rollout_switched.revision == revision
    assert last.actor == "control"
    assert mesh_of_two.control.journal.view.state.effective.revision == revision


@pytest.mark.parametrize("hours", [24, -24], ids=["forward", "back"])
async def test_a_wall_clock_that_is_set_neither_ends_a_canary_early_nor_keeps_it(
    database: str, kafka_c1: KafkaCluster, events_topic: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    set_by = timedelta()
    monkeypatch.setattr(process, "SteadyClock", lambda: SteadyClock(lambda: datetime.now(UTC) + set_by))
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        async with gateways(world, "g1") as router:
            began = time.monotonic()
            revision = await begin(world, router, "g1", duration=timedelta(seconds=2))
            set_by = timedelta(hours=hours)

            last = await outcome(world)

    assert last.rollout_switched.revision == revision
    assert time.monotonic() - began >= 2


async def test_a_gateway_that_refuses_is_the_end_of_it_and_is_named(mesh_of_two: World) -> None:
    async with gateways(mesh_of_two, "g1", "g2") as router:
        revision = await begin(mesh_of_two, router, "g1")
        await router.answers("g1", revision, admin.MEMBER_PHASE_REFUSED, "can't do that")

        last = await outcome(mesh_of_two)

    assert (last.rollout_aborted.revision, list(last.rollout_aborted.members)) == (revision, ["g1"])
    assert "can't do that" in last.rollout_aborted.cause


async def test_errors_that_rise_where_it_is_tried_are_the_end_of_it(mesh_of_two: World) -> None:
    async with gateways(mesh_of_two, "g1") as router:
        revision = await begin(mesh_of_two, router, "g1", permille=100)
        router.members["g1"].canary_requests.CopyFrom(admin.RequestCounts(answered=100, failed=30))
        router.members["g1"].requests.CopyFrom(admin.RequestCounts(answered=900, failed=1))
        await router.answers("g1", revision, TRYING)

        last = await outcome(mesh_of_two)

    assert (
        "30 of 100 requests failed where it is tried, 1 of 900 requests failed elsewhere" in last.rollout_aborted.cause
    )


@pytest.mark.parametrize("promote", [True, False], ids=["promoted", "given up"])
async def test_an_operator_ends_it_before_its_time(mesh_of_two: World, promote: bool) -> None:
    async with gateways(mesh_of_two, "g1") as router:
        revision = await begin(mesh_of_two, router, "g1")
        request = admin.EndCanaryRequest(revision=revision, promote=promote, reason="seen enough")
        await mesh_of_two.rules.EndCanary(request, timeout=CALL)

        last = await outcome(mesh_of_two)
        none = admin.EndCanaryRequest(revision=revision)
        await refused(mesh_of_two.rules.EndCanary(none, timeout=CALL), grpc.StatusCode.FAILED_PRECONDITION, "none is")

    assert last.WhichOneof("payload") == ("rollout_switched" if promote else "rollout_aborted")
    assert last.reason == "seen enough"


async def test_other_changes_wait_for_its_end(mesh_of_two: World) -> None:
    async with gateways(mesh_of_two, "g1") as router:
        revision = await begin(mesh_of_two, router, "g1")
        await refused(
            mesh_of_two.set("apples", "c1"), grpc.StatusCode.ABORTED, f"revision {revision}", "meshctl canary"
        )
        await mesh_of_two.rules.EndCanary(admin.EndCanaryRequest(), timeout=CALL)
        await mesh_of_two.set("apples", "c1")


async def test_what_moves_topics_or_names_nobody_known_is_not_for_canaries(mesh_of_two: World) -> None:
    async with gateways(mesh_of_two, "g1"):
        await refused(
            mesh_of_two.set("apples", "c1", canary=events.Canary(permille=10)),
            grpc.StatusCode.FAILED_PRECONDITION,
            "without a canary",
        )
        await refused(
            mesh_of_two.set_rule(
                {"client_software": "a/1"},
                {"node_view": routing.NODE_VIEW_SINGLE},
                canary=events.Canary(members=["g7"]),
            ),
            grpc.StatusCode.INVALID_ARGUMENT,
            "no gateway 'g7'",
        )


async def test_a_control_that_starts_in_the_middle_goes_on_watching(mesh_of_two: World) -> None:
    async with gateways(mesh_of_two, "g1") as router:
        revision = await begin(mesh_of_two, router, "g1", duration=timedelta(seconds=8))
    await mesh_of_two.stop()
    await mesh_of_two.start()
    async with gateways(mesh_of_two, "g1") as router:
        await router.answers("g1", revision, TRYING)

        last = await outcome(mesh_of_two)

    assert last.rollout_switched.revision == revision
