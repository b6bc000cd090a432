"""Starts services in the order of their needs, keeps them running, and stops them in the opposite order.

1. Each service is one task: wait for its needs, spawn it, ask until it is ready, then watch it.
2. A crash before a service was ever ready ends the start: the reason is the end of its log. A crash later is answered
   by a restart, after a pause that doubles while crashes follow one another.
3. A file `down/NAME` in the state folder means that somebody wants this service to be down: it is stopped, and started
   again when the file is gone. That is `kafka-mesh stop NAME` and `start NAME`, and how tests take a part away.
4. `processes.json` says at any time which process is which service, and in what state.
5. Stopping: a service stops when all that need it have stopped; each has a bound, after which it is killed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from local.layout import Layout, write_atomically
from local.processes import Child, describe_exit, kill_leftovers, log_tail
from local.services import Service

POLL_S = 0.1
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_AFTER_S = 60.0  # a service that ran this long has no run of crashes behind it
PROCESSES_FILE = "processes.json"
DOWN_FOLDER = "down"


class State(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    DONE = "done"
    CRASHED = "crashed"
    DOWN = "down"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Change:
    """A report of the supervisor: a service came into a state."""

    service: Service
    state: State
    detail: str = ""
    took_s: float = 0.0


class StartError(Exception):
    """A service did not become ready."""

    def __init__(self, service: Service, reason: str, log: Path) -> None:
        tail = log_tail(log)
        super().__init__(f"{service.name} {reason}" + (f"; the end of {log}:\n{tail}" if tail else f" (log: {log})"))
        self.service = service


class StateError(Exception):
    """A state folder is not as expected."""


def running_services(state: Path) -> list[str]:
    """The services, without the steps, of the mesh with this state folder."""
    try:
        rows = json.loads((state / PROCESSES_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(f"no mesh has its state in {state}: start one, or give its --state-dir") from None
    return [name for name, row in rows.items() if not row["is_step"]]


class Supervisor:
    def __init__(self, layout: Layout, services: Sequence[Service], tell: Callable[[Change], None]) -> None:
        self._layout = layout
        self._services = {service.name: service for service in services}
        self._tell = tell
        self._state = dict.fromkeys(self._services, State.WAITING)
        self._up = {name: asyncio.Event() for name in self._services}
        self._children: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start all services; raises StartError for the first that fails. `stop` ends the services that run then."""
        self._end_leftovers()
        shutil.rmtree(self._layout.state / DOWN_FOLDER, ignore_errors=True)  # what an earlier run took away is back
        for service in self._services.values():
            self._tasks[service.name] = asyncio.create_task(self._keep(service), name=service.name)
            self._tasks[service.name].add_done_callback(self._notice_failure)
        all_up = asyncio.create_task(self._all_up())
        ends: list[asyncio.Future[Any]] = [all_up, self._failure]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            all_up.cancel()
            self._failure.result()

    async def _all_up(self) -> None:
        for event in self._up.values():
            await event.wait()

    async def run(self) -> None:
        """Keep all running until cancelled; raises if the supervisor itself fails."""
        await self._failure

    async def stop(self) -> None:
        """Stop all, dependents first."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        running = dict(self._children)
        while running:
            needed = set().union(*(self._all_needs(name) for name in running))
            free = [name for name in running if name not in needed]
            await asyncio.gather(*(self._stop_one(self._services[name]) for name in free))
            for name in free:
                del running[name]

    def _notice_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self._failure.done():
            self._failure.set_exception(error)

    async def _keep(self, service: Service) -> None:
        for need in service.needs:
            if need in self._up:
                await self._up[need].wait()
        pause_s = FIRST_PAUSE_S
        while True:
            await self._while_down(service)
            began = time.monotonic()
            outcome = await self._run(service)
            if service.is_step:
                return
            if time.monotonic() - began > STEADY_AFTER_S:
                pause_s = FIRST_PAUSE_S
            if not self._is_down(service):
                self._set(service, State.CRASHED, f"{outcome}; starts again in {pause_s:g} s")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _run(self, service: Service) -> str:
        """One life of the service's process; returns how it ended."""
        began = time.monotonic()
        log = self._layout.log(service)
        self._set(service, State.STARTING)
        child = await Child.spawn(
            self._layout.command(service),
            log=log,
            settings=self._layout.settings(service),
            stop_signal=service.stop_signal,
        )
        self._children[service.name] = child
        self._write_processes()
        reason = await (self._until_done(service, child) if service.is_step else self._until_ready(service, child))
        if reason is None:
            self._set(service, State.DONE if service.is_step else State.READY, took_s=time.monotonic() - began)
            self._up[service.name].set()
        elif not self._up[service.name].is_set() and not self._is_down(service):
            raise StartError(service, reason, log)
        if reason is None and not service.is_step:
            reason = await self._until_exit(service, child)
        await child.stop(service.stop_timeout_s)
        del self._children[service.name]
        self._write_processes()
        return reason or "done"

    async def _until_ready(self, service: Service, child: Child) -> str | None:
        condition = self._layout.readiness(service)
        deadline = time.monotonic() + service.start_timeout_s
        while True:
            if child.exit_code is not None:
                return describe_exit(child.exit_code)
            unmet = await asyncio.to_thread(condition.unmet)
            if unmet is None:
                return None
            if time.monotonic() > deadline:
                return f"is not ready after {service.start_timeout_s:g} s ({unmet})"
            if self._is_down(service):
                return "is to be down"
            await asyncio.sleep(POLL_S)

    async def _until_done(self, service: Service, child: Child) -> str | None:
        try:
            code = await asyncio.wait_for(child.wait(), service.start_timeout_s)
        except TimeoutError:
            return f"is not done after {service.start_timeout_s:g} s"
        return describe_exit(code) if code else None

    async def _until_exit(self, service: Service, child: Child) -> str:
        exited = asyncio.ensure_future(child.wait())
        try:
            while not exited.done():
                if self._is_down(service):
                    return "is to be down"
                await asyncio.wait([exited], timeout=POLL_S)
        finally:
            exited.cancel()
        return describe_exit(exited.result())

    async def _while_down(self, service: Service) -> None:
        if self._is_down(service):
            self._set(service, State.DOWN, f"until `kafka-mesh start {service.name}`")
        while self._is_down(service):
            await asyncio.sleep(POLL_S)

    def _is_down(self, service: Service) -> bool:
        return (self._layout.state / DOWN_FOLDER / service.name).exists()

    def _all_needs(self, name: str) -> set[str]:
        """All direct and indirect needs of a service: control needs the database by way of its migration."""
        direct = [need for need in self._services[name].needs if need in self._services]
        return set(direct).union(*(self._all_needs(need) for need in direct))

    async def _stop_one(self, service: Service) -> None:
        await self._children.pop(service.name).stop(service.stop_timeout_s)
        self._set(service, State.STOPPED)

    def _set(self, service: Service, state: State, detail: str = "", took_s: float = 0.0) -> None:
        self._state[service.name] = state
        self._write_processes()
        self._tell(Change(service, state, detail, took_s))

    def _write_processes(self) -> None:
        rows = {}
        for name, state in self._state.items():
            child = self._children.get(name)
            rows[name] = {
                "state": state,
                "is_step": self._services[name].is_step,
                "pid": child and child.pid,
                "started_at": child and child.started_at,
            }
        write_atomically(self._layout.state / PROCESSES_FILE, json.dumps(rows, indent=2) + "\n")

    def _end_leftovers(self) -> None:
        """Ends processes that an earlier run left, if the kernel does not end children with their parent."""
        try:
            rows = json.loads((self._layout.state / PROCESSES_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        kill_leftovers({name: (row["pid"], row["started_at"]) for name, row in rows.items() if row["pid"]})
