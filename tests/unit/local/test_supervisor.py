"""The supervisor, with small real programs: order, crashes, parts taken away, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from local.layout import Layout
from local.leash import on_leash
from local.services import PORTS, Service
from local.supervisor import DOWN_FOLDER, PROCESSES_FILE, Change, StartError, State, Supervisor
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

START_S = 60.0
STOP_S = 15.0


class World:
    """A supervisor's surroundings: its state folder, what its programs noted, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(state=folder / "state", ports=dict(zip(PORTS, range_from_free(), strict=True)))
        self.notes_file = folder / "notes"
        self.told: list[Change] = []

    def program(
        self, name: str, *options: str, port: str = "", needs: tuple[str, ...] = (), stop_within_s: float = STOP_S
    ) -> Service:
        arguments = [name, str(self.notes_file), *options]
        if port:
            arguments += ["--port", f"{{{port}.port}}"]
        return Service(
            name=name,
            what=name,
            module="tests.unit.local.program",
            arguments=tuple(arguments),
            needs=needs,
            ready=f"http://{{{port}}}/ready" if port else "",
            stop_timeout_s=stop_within_s,
        )

    @property
    def notes(self) -> list[str]:
        return self.notes_file.read_text(encoding="utf-8").splitlines()

    def pid(self, name: str) -> int:
        rows = json.loads((self.layout.state / PROCESSES_FILE).read_text(encoding="utf-8"))
        return int(rows[name]["pid"] or 0)

    def states(self, name: str) -> list[State]:
        return [change.state for change in self.told if change.service.name == name]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        await asyncio.to_thread(wait_until, condition, what)

    @asynccontextmanager
    async def running(self, *services: Service) -> AsyncIterator[Supervisor]:
        supervisor = Supervisor(self.layout, services, self.told.append)
        try:
            await asyncio.wait_for(supervisor.start(), START_S)
            yield supervisor
        finally:
            await supervisor.stop()


def range_from_free() -> range:
    first = free_block(len(PORTS))
    return range(first, first + len(PORTS))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_services_start_after_what_they_need_and_stop_before_it(world: World) -> None:
    services = (
        world.program("front", port="gateway", needs=("back",)),
        world.program("back", port="control", needs=("step",)),
        world.program("step", needs=("store",)),
        world.program("store", port="postgres"),
    )
    async with world.running(*services):
        assert world.notes == ["started store", "started step", "started back", "started front"]

    assert world.notes[4:] == ["stopped front", "stopped back", "stopped store"]


async def test_a_service_that_crashed_is_back(world: World) -> None:
    async with world.running(world.program("one", port="gateway")):
        first = world.pid("one")
        os.kill(first, signal.SIGKILL)
        await world.until(lambda: world.states("one").count(State.READY) == 2, "it is back")
        assert world.pid("one") != first

    assert world.states("one")[:4] == [State.STARTING, State.READY, State.CRASHED, State.STARTING]
    assert "SIGKILL" in world.told[2].detail


async def test_a_start_that_fails_says_why(world: World) -> None:
    services = (world.program("good", port="gateway"), world.program("bad", "--fail", port="control"))
    with pytest.raises(StartError, match=r"(?s)bad exited with 7.*made of cheese"):
        async with world.running(*services):
            pytest.fail("it started")

    assert "stopped good" in world.notes or "started good" not in world.notes


async def test_a_service_that_is_never_ready_ends_the_start(world: World) -> None:
    never = Service(
        name="never",
        what="never",
        module="tests.unit.local.program",
        arguments=("never", str(world.notes_file), "--port", "{gateway.port}"),
        ready="http://{control}/ready",
        start_timeout_s=1.0,
    )
    with pytest.raises(StartError, match="is not ready after 1 s"):
        async with world.running(never):
            pytest.fail("it started")


async def test_a_service_that_does_not_listen_to_reason_is_killed_within_its_bound(world: World) -> None:
    began = 0.0
    async with world.running(world.program("deaf", "--deaf", port="gateway", stop_within_s=0.5)):
        pid = world.pid("deaf")
        began = time.monotonic()

    assert time.monotonic() - began < STOP_S
    assert not psutil.pid_exists(pid)


async def test_a_part_that_somebody_took_away_stays_away_until_it_is_wanted(world: World) -> None:
    async with world.running(world.program("one", port="gateway")):
        down = world.layout.state / DOWN_FOLDER / "one"
        down.parent.mkdir()
        down.touch()
        await world.until(lambda: world.states("one")[-1] is State.DOWN, "it is down")
        assert world.notes == ["started one", "stopped one"]

        down.unlink()
        await world.until(lambda: world.states("one")[-1] is State.READY, "it is back")

    assert State.CRASHED not in world.states("one")


async def test_a_stop_in_the_middle_of_a_start_leaves_nothing(world: World) -> None:
    services = (
        world.program("ready", port="gateway"),
        Service(
            name="slow",
            what="slow",
            module="tests.unit.local.program",
            arguments=("slow", str(world.notes_file), "--port", "{control.port}"),
            ready="http://{router}/ready",
        ),
    )
    supervisor = Supervisor(world.layout, services, world.told.append)
    starting = asyncio.ensure_future(supervisor.start())
    await world.until(lambda: world.notes_file.exists() and "started slow" in world.notes, "slow runs")
    await world.until(lambda: world.pid("slow") > 0, "its process is known")
    pids = [world.pid("slow")]

    await supervisor.stop()

    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(asyncio.CancelledError):
        starting.cancel()
        await starting


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux only")
def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = (
        "import subprocess, sys, time; from local.leash import on_leash; "
        f"subprocess.Popen(on_leash([sys.executable, '-c', {child!r}]), start_new_session=True); time.sleep(60)"
    )
    parent = subprocess.Popen(on_leash([sys.executable, "-c", script]))
    wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the child runs")
    pid = int(pid_file.read_text())

    parent.kill()
    parent.wait(START_S)

    wait_until(lambda: not _runs(pid), "the child is gone")


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
