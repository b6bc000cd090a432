"""Starts the member, serves, and stops it so that the next member resumes its work.

At its end, the member takes nothing new. Drivers get SIGTERM and may finish in order, and control gets their last
progress. Replays stay open for the next member that follows. If this process ends in another way, its drivers end too
(`services/pipeline/driver.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from mesh.lifecycle import Lifecycle
from mesh.rpc import replays
from mesh.telemetry import serve_management
from services.pipeline.serving.continuous import ContinuousDriver
from services.pipeline.serving.control import ControlLink
from services.pipeline.serving.driver import Command
from services.pipeline.serving.job_orders import JobOrders
from services.pipeline.serving.orders import DRIVERS, OrderMaking
from services.pipeline.serving.redaction import secrets_of
from services.pipeline.serving.replay import Carrying, command_of
from services.pipeline.serving.replays import ReplayFollower
from services.pipeline.settings import ContinuousJob, PipelineSettings

READINESS_S = 1.0
"""Seconds between two checks whether the jobs can be kept running."""
TELL_S = 3.0
"""Seconds for the last reports of progress to control."""
SPARE_S = 5.0
"""Seconds of a stop beside the time for drivers and for control."""

MOST_DRIVERS = 5
"""The limit if the settings have none; each driver has a JVM of its own."""
BESIDE_HEAP = 700 * 1024**2
"""Bytes that a driver needs beside its JVM's heap: the JVM itself, Python, and the workers that read Kafka."""
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = {"m": 1024**2, "g": 1024**3}

log = structlog.get_logger(__name__)


def stop_bound_s(settings: PipelineSettings) -> float:
    """The most seconds that a stop may take."""
    return settings.driver_stop_s + TELL_S + SPARE_S


def continuous_command(job: ContinuousJob, settings: PipelineSettings, gateway: str) -> Command:
    """The command of a continuous job's driver.

    It gets the settings of this process by the environment and the file.
    """
    what: tuple[str, ...] = ()
    if job is ContinuousJob.ARCHIVE:
        servers = ",".join(settings.bootstrap_servers) or gateway
        what = (*settings.archive_topics, "--to", settings.archive_folder, "--bootstrap", servers)
    arguments = ("run", job.value, *what, "--continuous")
    between_looks_s = max(settings.trigger_interval_s, settings.audit_heartbeat_s)
    return Command(
        job.value,
        job.value,
        arguments,
        secrets=secrets_of(settings),
        silence_s=settings.driver_silence_s + between_looks_s,
        niceness=settings.driver_niceness,
    )


class Member:
    """One process of `serve`; create it within a running loop."""

    def __init__(self, settings: PipelineSettings, gateway: str) -> None:
        self._settings = settings
        self._superseded = ""
        at_a_time = settings.max_drivers or drivers_at_a_time(settings.driver_memory, len(settings.jobs))
        turns = asyncio.Semaphore(at_a_time)
        making, secrets = OrderMaking(settings), secrets_of(settings)

        def begin(replay: replays.Replay, tell: Callable[[replays.ReportReplayRequest], None]) -> Carrying:
            return Carrying(
                replay,
                settings.name,
                make_order=making.order,
                tell=tell,
                turns=turns,
                attempts=settings.driver_attempts,
                stop_s=settings.driver_stop_s,
                make_command=lambda order: command_of(order, secrets, settings.driver_niceness),
            )

        self._link = ControlLink(
            settings.control_addresses, settings.name, tuple(DRIVERS), max_running=at_a_time, tls=settings.rpc_tls
        )
        self._follower = ReplayFollower(self._link, begin, superseded=self._give_way)
        self._jobs = [ContinuousDriver(continuous_command(job, settings, gateway)) for job in settings.jobs]
        self._orders = JobOrders(self._link, self._jobs)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def trouble(self) -> str:
        """The reason why the member can't work; empty if it can.

        An absent control is no reason, because jobs go on.
        """
        return self._superseded or "; ".join(job.trouble for job in self._jobs if job.trouble)

    async def run(self) -> None:
        """Runs for ever; raises if a part of the member ends."""
        jobs = {f"job {each.name}": each.run() for each in self._jobs}
        work = {"replays": self._follower.run(), "orders": self._orders.run(), **jobs}
        self._tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Stops the member: see the top of this file."""
        if self._tasks:
            follower, orders, *_ = self._tasks
            for each in (follower, orders):
                each.cancel()
            await asyncio.gather(follower, orders, return_exceptions=True)
        await asyncio.gather(
            self._follower.drain(self._settings.driver_stop_s, TELL_S),
            *(job.stop(self._settings.driver_stop_s) for job in self._jobs),
        )
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    def _give_way(self, reason: str) -> None:
        """Kills the drivers of this member's jobs, because a younger process has the same jobs.

        Two processes must not write from one checkpoint. The drivers of the younger process are starting now, and their
        start takes longer than the end of the drivers here.
        """
        log.error("this member gives way, and does nothing more", reason=reason)
        self._superseded = reason
        for job in self._jobs:
            job.kill()


async def serve(settings: PipelineSettings, gateway: str, lifecycle: Lifecycle) -> None:
    """Runs the member until the process has to stop. OSError if a port is taken."""
    management = serve_management(settings.metrics_listen, lifecycle)
    member = Member(settings, gateway)
    running = asyncio.create_task(member.run(), name="member")
    stopping = asyncio.create_task(lifecycle.stopping.wait(), name="stopping")
    log.info("pipeline serves", control=list(settings.control_addresses), jobs=[job.value for job in settings.jobs])
    try:
        while not stopping.done() and not running.done():
            if member.trouble:
                lifecycle.not_ready(member.trouble)
            else:
                lifecycle.ready()
            await asyncio.wait([running, stopping], timeout=READINESS_S, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        running.cancel()
        stopping.cancel()
        await member.stop()
        management.stop()


def drivers_at_a_time(heap: str, continuous_jobs: int, *, memory: int | None = None, cores: int | None = None) -> int:
    """Orders that this machine can run at once beside the continuous jobs: by memory and cores, at least one."""
    each = int(heap[:-1]) * _UNITS[heap[-1]] + BESIDE_HEAP
    room = (_memory() if memory is None else memory) - continuous_jobs * each
    return max(1, min(MOST_DRIVERS, (os.cpu_count() or 1) if cores is None else cores, room // each))


def _memory() -> int:
    """Bytes of memory of this machine, or of this container."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in CGROUP_LIMITS:
        try:
            said = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if said.isdecimal():  # "max" means no limit
            return min(physical, int(said))
    return physical
