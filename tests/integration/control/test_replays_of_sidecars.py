"""Real sidecars carry replays out, and survive each other."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mesh.rpc import replays
from services.control.decisions.replays import commands as decisions
from services.control.steady_clock import steady_clock
from tests.fixtures.backend import Backend
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.replays import DONE, ended, replay_now, start, to_backend
from tests.integration.control.world import World, until
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

RECORDS = 40
RATE = 4
"""Records a second: so that a sidecar can end in the middle."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as backend:
        yield backend


async def test_a_sidecar_that_ends_is_followed_by_the_next_from_the_last_acknowledged_record(
    world: World, kafka_c1: KafkaCluster, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "COMING_BACK", 0.0)
    orders, kafka = f"roomc-orders-{uuid.uuid4().hex[:8]}", Kafka(kafka_c1.bootstrap)
    kafka.create(orders, partitions=1)
    kafka.write(orders, *({"value": b"%d" % number} for number in range(RECORDS)))

    def sidecar(name: str) -> contextlib.AbstractContextManager[SidecarWorld]:
        settings: dict[str, Any] = {
            "reactive_topics": orders, "reactive_group": f"{orders}-tills", "backend_url": backend.host_url,
            "value_format": "string", "state_dir": str(tmp_path / name), "name": name,
        }  # fmt: skip
        return started(kafka_c1.bootstrap, control_addresses=f"127.0.0.1:{world.control.port}", **settings)

    def is_there(name: str) -> bool:
        reads = any(each.sidecar == name for each in world.control.reports.known.instances.values())
        return reads and name in {each.member for each in world.control.replay_followers.candidates()}

    with contextlib.ExitStack() as second:
        with contextlib.ExitStack() as first:
            await asyncio.to_thread(first.enter_context, sidecar("till-1"))
            await until(lambda: is_there("till-1"), "till-1 follows")
            await asyncio.to_thread(second.enter_context, sidecar("till-2"))
            await until(lambda: is_there("till-2"), "till-2 follows")
            await until(lambda: len(backend.records) >= RECORDS, "the backend has them for the first time")
            backend.calls.clear()
            replay = await start(world, to_backend(orders, rate=RATE), wait_ms=20_000)
            assert replay.member == "members/till-1"
            await until(lambda: len(backend.records) >= RECORDS // 4, "till-1 has done a part of it")
            await asyncio.to_thread(first.close)
        assert (await replay_now(world, replay)).state == replays.REPLAY_STATE_RUNNING
        before = len(backend.records)
        world.control.replay_followers.clock = lambda: steady_clock() + timedelta(seconds=30)
        done = await ended(world, replay)
        await asyncio.to_thread(second.close)
    assert (done.state, done.member) == (DONE, "members/till-2"), done.description
    offsets = [each["offset"] for each in backend.records]
    assert sorted(set(offsets)) == list(range(RECORDS))
    assert len(offsets) - RECORDS < before, "it went on where the first was, and did not begin again"
    assert done.partitions[0].position == RECORDS
