"""One running topology: prepares its topics, starts and watches its workers, and replaces them for a new definition.

A replacement continues where the old definition ended: the old workers end after their rounds, whose offsets and state
are committed. The new workers use the same group, stores and topics. So no record is lost or processed twice. A new
definition is checked before the old workers stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import KafkaException

from mesh.pauses import pause
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.faults import Fault
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.producing.serializing import Serializer
from services.sidecar.streams.backend import Backend
from services.sidecar.streams.plan import Plan
from services.sidecar.streams.processing import Tools, WorkerOptions
from services.sidecar.streams.records import TopologyError
from services.sidecar.streams.store_follower import Follower, StorePlace
from services.sidecar.streams.topics import StreamTopics, TopicsMissingError
from services.sidecar.streams.topology import Topology
from services.sidecar.streams.worker import State, Worker
from services.sidecar.streams.writing import encoding
from services.sidecar.telemetry import metrics

WATCH_SECONDS = 2.0
FORGET_SECONDS = 30.0
"""The time between two deletions of processed records from the topology's internal topics."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 10.0
_SEVERITY = (State.FAILED, State.RESTORING, State.REBALANCING, State.RUNNING)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects and options that all topologies of a sidecar share."""

    application: str
    folder: Path
    threads: int
    sidecar: str
    """The sidecar's name, a part of transactional ids: a restart thereby ends open transactions of the old process."""
    stop_seconds: float
    max_store_bytes: int
    max_record_bytes: int
    keep_ready: bool
    replication: int
    properties: Mapping[str, Any]
    """The properties of clients that neither read nor write records."""
    options: Callable[[Plan], WorkerOptions]
    reader: RecordReader
    serializer: Serializer
    backend: Backend | None
    audit: AuditTrail


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The status of a topology."""

    name: str
    state: State
    reason: str
    tasks: list[str]
    opening: list[str]
    standby: int
    lag: int
    state_bytes: int


class RunningTopology:
    """One running topology. Call `start`, `replace` and `stop` within one running event loop."""

    def __init__(self, topology: Topology, surroundings: Surroundings) -> None:
        """TopologyError when the topology cannot run."""
        self._surroundings = surroundings
        self._topics = StreamTopics(surroundings.properties, replication=surroundings.replication)
        self.plan = topology.plan(surroundings.application)
        self._workers: list[Worker] = []
        self._follower: Follower | None = None
        self._failure = ""
        self._replacing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.partitions: dict[str, int] = {}
        """The number of partitions of each source, by topic."""

    def start(self, *, clean_up: bool = False) -> None:
        """Starts the topology in the background."""
        if clean_up:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._task = asyncio.create_task(self._run(), name=f"stream {self.plan.name}")

    @property
    def folder(self) -> Path:
        return self._surroundings.folder / self.plan.group

    async def replace(self, topology: Topology) -> None:
        """Continues with another definition. TopologyError, OSError or Fault when it cannot; then nothing changes."""
        async with self._replacing:
            plan = topology.plan(self._surroundings.application)
            self.plan.replaceable_by(plan)
            try:
                prepared = await self._prepared(plan)
            except KafkaException as error:
                raise OSError(error.args[0].str()) from None
            await self._stop_workers()
            self.plan = plan
            self._failure = ""
            self._start_workers(*prepared)
            log.info("topology replaced", topology=plan.name)

    async def stop(self) -> None:
        """Stops after the present rounds."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._replacing:
            await self._stop_workers()

    @property
    def state(self) -> State:
        if self._failure:
            return State.FAILED
        states = {worker.state for worker in self._workers}
        return next((one for one in _SEVERITY if one in states), State.REBALANCING)

    @property
    def reason(self) -> str:
        """The reason why the topology does not run; empty while it runs."""
        found = [self._failure, *(worker.failure for worker in self._workers)]
        if self._follower is not None and self.state is State.RESTORING:
            found.append(self._follower.status.failure)
        return "; ".join(dict.fromkeys(filter(None, found)))

    def status(self) -> StreamStatus:
        return StreamStatus(
            self.plan.name,
            self.state,
            self.reason,
            sorted(str(one) for worker in self._workers for one in worker.tasks),
            sorted(str(one) for worker in self._workers for one in worker.opening),
            self._follower.status.standby if self._follower is not None else 0,
            sum(worker.lag for worker in self._workers),
            _size(self.folder),
        )

    def held(self, store: str) -> dict[int, Path]:
        """The files of the store's partitions that this instance has open, by partition."""
        part = self.plan.with_store(store)
        follower = self._follower
        if part is None or follower is None:
            return {}
        mine = [one.partition for worker in self._workers for one in worker.tasks if one.lead == part.lead]
        return {partition: follower.path_of(StorePlace(store, partition)) for partition in sorted(mine)}

    async def _run(self) -> None:
        failures = 0
        while not self._workers:
            async with self._replacing:
                try:
                    if not self._workers:
                        self._start_workers(*await self._prepared(self.plan))
                        self._failure = ""
                except TopologyError as error:
                    self._failure = str(error)
                    log.error("a topology cannot run", topology=self.plan.name, reason=str(error))
                    break
                except (KafkaException, TopicsMissingError, Fault, OSError) as error:
                    text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
                    self._failure = f"trying again: {text}"
            if self._failure:
                failures += 1
                await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
        await self._watch()

    async def _prepared(self, plan: Plan) -> tuple[dict[str, int], Tools]:
        partitions = await asyncio.to_thread(self._topics.prepare, plan)
        around = self._surroundings
        encode = await encoding(plan.targets, around.serializer, max_record_bytes=around.max_record_bytes)
        options = around.options(plan)
        follower = Follower(
            plan,
            options.consumer,
            around.folder / plan.group,
            max_store_bytes=around.max_store_bytes,
            keep_ready=around.keep_ready,
        )
        loop = asyncio.get_running_loop()
        return partitions, Tools(plan, follower, around.reader, encode, around.backend, around.audit, loop)

    def _start_workers(self, partitions: dict[str, int], tools: Tools) -> None:
        self.partitions = partitions
        self._follower = tools.follower
        places = [
            StorePlace(store, partition)
            for part in tools.plan.parts
            for store in part.stores
            for partition in range(partitions[part.lead])
        ]
        tools.follower.start(places)
        options = self._surroundings.options(tools.plan)
        ids = [f"{tools.plan.group}-{self._surroundings.sidecar}-{one}" for one in range(self._surroundings.threads)]
        self._workers = [Worker(tools, options, id_) for id_ in ids]
        for worker in self._workers:
            worker.start()

    async def _stop_workers(self) -> None:
        workers, self._workers = self._workers, []
        follower, self._follower = self._follower, None
        for worker in workers:
            worker.interrupt()
        seconds = self._surroundings.stop_seconds
        await asyncio.gather(*(asyncio.to_thread(worker.stop, seconds) for worker in workers))
        if follower is not None:
            await asyncio.to_thread(follower.stop, seconds)

    async def _watch(self) -> None:
        forgot_at = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._measure()
            if time.monotonic() - forgot_at >= FORGET_SECONDS:
                forgot_at = time.monotonic()
                with contextlib.suppress(KafkaException):  # the next deletion includes these records
                    await asyncio.to_thread(self._topics.forget, self._done_with())

    def _done_with(self) -> dict[tuple[str, int], int]:
        own = {topic for part in self.plan.parts for topic, source in part.sources.items() if source.is_internal}
        found = {place: offset for worker in self._workers for place, offset in worker.committed.items()}
        return {place: offset for place, offset in found.items() if place[0] in own}

    def _measure(self) -> None:
        status = self.status()
        name = self.plan.name
        metrics.stream_tasks.labels(name, "open").set(len(status.tasks))
        metrics.stream_tasks.labels(name, "opening").set(len(status.opening))
        metrics.stream_tasks.labels(name, "standby").set(status.standby)
        metrics.stream_lag.labels(name).set(status.lag)
        metrics.stream_state_bytes.labels(name).set(status.state_bytes)


def _size(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in folder.iterdir())
    return 0
