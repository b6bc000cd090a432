"""Follows the replays that control gives this sidecar, has them carried out as jobs, and reports their progress.

1. Control sends all open replays, with their progress, whenever a sidecar begins to follow. So nothing is lost if
   control or the sidecar was away, and a new process continues the replays of the one before.
2. The sidecar reports progress once a second at most. It reports an end at once, until control has heard it.
3. If control is away for long, it may give the replays to other sidecars. This sidecar holds its jobs long before that.
4. If control says that a replay belongs to another sidecar, this sidecar drops the job. A process that continues a job
   fences the process before it (`jobs.ledger`).
"""

import asyncio
import contextlib
import time
import uuid

import grpc
import structlog

from mesh import durations
from mesh.pauses import pause
from mesh.rpc import replays
from mesh.rpc.cancellation import heed_cancellation
from services.sidecar.control.connection import Connection
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.jobs.job import Job, JobSpec, PartitionProgress, RefusedError
from services.sidecar.jobs.jobs import Jobs
from services.sidecar.jobs.messages import NAME_PREFIX, job_of, report, spec_message

REPORT_SECONDS = 1.0
HOLD_SECONDS = 8.0
"""Control gives a replay to another sidecar 15 s after it has lost the present one."""
LOOK_SECONDS = 0.5
GIVEN_SECONDS = 2.0
"""How long a call that starts a replay waits until control has given it."""
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
_ANOTHERS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)
_REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)

log = structlog.get_logger(__name__)


class ReplayFollower:
    """The background task between control and jobs."""

    def __init__(self, connection: Connection, jobs: Jobs) -> None:
        self._connection = connection
        self._jobs = jobs
        self._untold: dict[str, Job] = {}
        self._told: dict[str, dict[object, PartitionProgress]] = {}
        self._wake = asyncio.Event()
        self._heard_at = time.monotonic()
        self._cancelling: set[asyncio.Task[object]] = set()
        jobs.on_change = self._changed

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as together:
            together.create_task(self._follow())
            together.create_task(self._report())
            together.create_task(self._watch())

    async def start(self, spec: JobSpec) -> Job:
        """Starts a replay on this sidecar that control knows; without control, a local job. RefusedError."""
        self._jobs.check(spec)
        if not self._connection.is_up:
            return await self._jobs.start(spec)
        request = replays.StartReplayRequest(
            spec=spec_message(spec, self._connection.sidecar),
            reason="asked for over HTTP, of this sidecar",
            request_id=str(uuid.uuid4()),
            wait=durations.of_ms(1),
        )
        try:
            replay = await self._connection.start_replay(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # a control of an earlier release
                return await self._jobs.start(spec)
            if error.code() in _REFUSALS:
                raise RefusedError(error.details() or "control refuses it") from None
            raise Fault(
                FaultKind.REQUEST_TOOK_TOO_LONG,
                f"Control does not say whether the replay is begun ({error.details()}); look for it, then try again",
            ) from None
        return await self._given(job_of(replay, by_control=True))

    async def _given(self, job: Job) -> Job:
        until = time.monotonic() + GIVEN_SECONDS
        while (here := self._jobs.get(job.id)) is None and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return here or job

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for replay in self._connection.open_replays():
                    failures = 0
                    self._take(replay)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.ABORTED:  # a younger process of this sidecar's name has them
                    await self._jobs.hold()
                    await asyncio.Event().wait()
                log.debug("replays cannot be followed", reason=error.details(), code=error.code().name)
            heed_cancellation()
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    def _take(self, replay: replays.Replay) -> None:
        try:
            job = self._jobs.take(job_of(replay, by_control=True))
        except RefusedError as refused:
            self._refuse(replay, str(refused))
            return
        if replay.cancelling:
            task = asyncio.create_task(self._jobs.cancel(job.id), name=f"cancel {job.id}")
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)
        self._changed(job)  # a job that has ended here is reported again

    def _refuse(self, replay: replays.Replay, why: str) -> None:
        """Reports once that the replay cannot be a job here. If the report is lost, control sends the replay again."""
        request = replays.ReportReplayRequest(
            name=replay.name, member=self._connection.sidecar, state=replays.REPLAY_STATE_FAILED, description=why
        )
        task = asyncio.create_task(self._tell(request), name=f"refuse {replay.name}")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _watch(self) -> None:
        """Holds control's jobs while control does not answer."""
        is_held = False
        while True:
            now = time.monotonic()
            if self._connection.is_up:
                self._heard_at, is_held = now, False
            elif now - self._heard_at > HOLD_SECONDS and not is_held:
                is_held = True
                await self._jobs.hold()
            await asyncio.sleep(LOOK_SECONDS)

    def _changed(self, job: Job) -> None:
        if job.by_control:
            self._untold[job.id] = job
            if job.state.is_end:
                self._wake.set()

    async def _report(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            untold, self._untold = self._untold, {}
            for id_, job in untold.items():
                if not await self._reported(job):
                    self._untold.setdefault(id_, job)
            if self._untold:
                await asyncio.sleep(FIRST_PAUSE_SECONDS)

    async def _reported(self, job: Job) -> bool:
        """Reports the job; False if control did not answer."""
        told = self._told.setdefault(job.id, {})
        changed = [one for one in job.partitions.values() if told.get(one.partition) != one]
        is_end = job.state.is_end
        is_heard = await self._tell(report(job, self._connection.sidecar, changed))
        if is_heard:
            told.update((one.partition, one) for one in changed)
            if is_end:
                self._told.pop(job.id, None)
        return is_heard

    async def _tell(self, request: replays.ReportReplayRequest) -> bool:
        try:
            await self._connection.report_replay(request)
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            if error.code() not in _ANOTHERS:
                log.debug("a replay's progress can't be sent to control", replay=request.name, reason=error.details())
                return False
            id_ = request.name.removeprefix(NAME_PREFIX)
            log.info("a replay is another's, or has ended", replay=request.name, reason=error.details())
            self._told.pop(id_, None)
            job = self._jobs.get(id_)
            if job is not None and not job.state.is_end:
                self._jobs.drop(id_)
        return True
