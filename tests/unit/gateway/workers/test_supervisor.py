"""The supervisor and its processes, which are scripted here."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from mesh.lifecycle import Lifecycle, Phase
from services.gateway.settings import GatewaySettings
from services.gateway.workers import post, supervisor
from services.gateway.workers.supervisor import KILL_S, Supervisor, WorkerFailedError
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.workers import scripted_worker


class Workers:
    """Two, as they are scripted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def script(self, one: str, other: str) -> None:
        (self._folder / "1").write_text(one)
        (self._folder / "2").write_text(other)

    def pids(self, number: int) -> list[int]:
        """Of all processes that this worker has been."""
        path = self._folder / f"{number}.pids"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def left(self) -> list[int]:
        return [pid for number in (1, 2) for pid in self.pids(number) if psutil.pid_exists(pid)]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setenv(scripted_worker.SCRIPT, str(tmp_path))
    monkeypatch.setattr(post, "PROGRAM", scripted_worker.__name__)
    return Workers(tmp_path)


@asynccontextmanager
async def supervised() -> AsyncIterator[tuple[Lifecycle, asyncio.Task[None]]]:
    lifecycle = Lifecycle()
    running = Supervisor(GatewaySettings(listen=("127.0.0.1:0",), workers=2, name="g"), lifecycle)
    task = asyncio.create_task(running.run())
    try:
        yield lifecycle, task
    finally:
        await running.stop()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_ready_with_all_workers_and_stops_with_them(workers: Workers) -> None:
    workers.script("ready", "ready")
    async with supervised() as (lifecycle, _):
        await until(lambda: lifecycle.is_ready, "all are ready", WITHIN_S)
        assert len(workers.left()) == 2
    assert workers.left() == []


async def test_a_worker_that_fails_at_the_start_ends_it_for_all(workers: Workers) -> None:
    workers.script("ready", "fails")
    async with supervised() as (lifecycle, task):
        with pytest.raises(WorkerFailedError, match=r"worker 2 has ended \(exit code 3\) before all were ready"):
            await asyncio.wait_for(task, WITHIN_S)
        assert not lifecycle.is_ready
    assert workers.left() == []


async def test_a_worker_that_dies_is_missed_until_it_is_back(workers: Workers) -> None:
    workers.script("ready", "ready")
    async with supervised() as (lifecycle, _):
        await until(lambda: lifecycle.is_ready, "all are ready", WITHIN_S)
        (first,) = workers.pids(1)
        os.kill(first, signal.SIGKILL)
        await until(lambda: lifecycle.phase is Phase.NOT_READY, "it is missed", WITHIN_S)
        await until(lambda: lifecycle.is_ready, "it is back", WITHIN_S)
        assert (len(workers.pids(1)), len(workers.pids(2))) == (2, 1)
    assert workers.left() == []


async def test_a_worker_that_does_not_end_is_killed(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "stop_bound_s", lambda _: KILL_S)  # it has no time at all
    workers.script("stubborn", "stubborn")
    async with supervised() as (lifecycle, _):
        await until(lambda: lifecycle.is_ready, "all are ready", WITHIN_S)
    assert workers.left() == []
