"""The member that tests play: it follows its replays and tells how far they are; and what operators ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from mesh import durations
from mesh.rpc import replays
from tests.integration.control.sidecar import ELDER
from tests.integration.control.world import CALL, World, until

RUNNING, DONE, FAILED, CANCELLED = (
    replays.REPLAY_STATE_RUNNING,
    replays.REPLAY_STATE_DONE,
    replays.REPLAY_STATE_FAILED,
    replays.REPLAY_STATE_CANCELLED,
)
ADA = [("x-mesh-actor", "ada")]


class Member:
    """One process of a member that carries out replays."""

    def __init__(self, world: World, name: str = "s1", incarnation: str = ELDER) -> None:
        self._world = world
        self.name = name
        self.incarnation = incarnation

    @asynccontextmanager
    async def follows(self, *destinations: str) -> AsyncIterator[Given]:
        request = replays.FollowReplaysRequest(
            member=self.name, incarnation=self.incarnation, destinations=destinations
        )
        call = self._world.replays.FollowReplays(request)
        try:
            await until(lambda: self._is_there, f"{self.name} is there")
            yield Given(call)
        finally:
            call.cancel()
            await until(lambda: not self._is_there, f"{self.name} is gone")

    @property
    def _is_there(self) -> bool:
        return self.name in {each.member for each in self._world.control.replay_followers.candidates()}

    async def reports(
        self, replay: replays.Replay, state: replays.ReplayState.ValueType, *partitions: replays.ReplayPartition,
        description: str = "",
    ) -> None:  # fmt: skip
        request = replays.ReportReplayRequest(
            name=replay.name, member=self.name, partitions=partitions, state=state, description=description
        )
        await self._world.replays.ReportReplay(request, timeout=CALL)


class Given:
    """What a member is told, one after the other."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def next(self) -> replays.Replay:
        async with asyncio.timeout(CALL):
            replay = await self.call.read()
        if replay is grpc.aio.EOF:
            raise EOFError("control has no more replays on this stream")
        assert isinstance(replay, replays.Replay)
        return replay


def to_backend(*topics: str, sidecar: str = "", **fields: Any) -> replays.ReplaySpec:
    """All records of these topics, to the backend of a sidecar."""
    ranges = [replays.ReplayRange(topic=topic) for topic in topics or ("orders",)]
    return replays.ReplaySpec(ranges=ranges, backend=replays.ReplayToBackend(sidecar=sidecar), **fields)


def of_group(group: str, *ranges: replays.ReplayRange, stop: bool = False, dry_run: bool = False) -> replays.ReplaySpec:
    return replays.ReplaySpec(ranges=ranges, group=replays.ReplayByGroup(group=group, stop=stop), dry_run=dry_run)


def part(position: int, records: int = 0, partition: int = 0, **fields: Any) -> replays.ReplayPartition:
    """Of orders, with offsets 0 to 1000."""
    known = {"topic": "orders", "start_offset": 0, "end_offset": 1000, **fields}
    return replays.ReplayPartition(partition=partition, position=position, records=records, **known)


async def start(world: World, spec: replays.ReplaySpec, wait_ms: int = 1, **fields: Any) -> replays.Replay:
    """A replay of ada's; the answer does not wait for its plan, unless told."""
    request = replays.StartReplayRequest(spec=spec, wait=durations.of_ms(wait_ms), **fields)
    return await world.replays.StartReplay(request, timeout=CALL, metadata=ADA)


async def replay_now(world: World, replay: replays.Replay) -> replays.Replay:
    return await world.replays.GetReplay(replays.GetReplayRequest(name=replay.name), timeout=CALL)


async def cancel(world: World, replay: replays.Replay, **fields: Any) -> replays.Replay:
    request = replays.CancelReplayRequest(name=replay.name, **fields)
    return await world.replays.CancelReplay(request, timeout=CALL, metadata=ADA)


async def ended(world: World, replay: replays.Replay) -> replays.Replay:
    """As soon as it has."""

    async def has_ended() -> bool:
        return (await replay_now(world, replay)).HasField("end_time")

    await until(has_ended, f"{replay.name} has ended", within=CALL)
    return await replay_now(world, replay)
