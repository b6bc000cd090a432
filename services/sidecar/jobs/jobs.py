"""All jobs of this sidecar: some run, others wait for their turn, and the last jobs that ended are remembered.

1. If control knows a job, control owns it. Control gives the job to the sidecar that shall carry it out, and gives it
   again to each new process. Any other job is in the state file, and the next process continues it.
2. A job runs alone in its group: two jobs in one group would overwrite each other's offsets.
3. The end of the process is no end of a job. A held job (`hold`) goes on when control gives the job again.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from services.sidecar.jobs.job import Job, JobSpec, JobState, RefusedError, check
from services.sidecar.jobs.job_store import decoded, encoded
from services.sidecar.jobs.run import JobRun, JobTools
from services.sidecar.state.state_file import StateFile, StateWriter
from services.sidecar.telemetry import metrics

MAX_OPEN = 100
"""The number of jobs that run or wait, at most; a further job is refused."""
KEPT_ENDS = 100
"""The number of ended jobs that are remembered, at most."""
STOP_SECONDS = 10.0
SAVE_SECONDS = 1.0
"""The shortest time between two writes of progress to the state file. Kafka has the progress in any case."""

log = structlog.get_logger(__name__)


class TooManyJobsError(Exception):
    """The sidecar accepts no more jobs now; the text has the number of open jobs."""


@dataclass(slots=True)
class _Entry:
    job: Job
    running: asyncio.Task[None] | None = None
    cancelled: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Jobs:
    """The jobs of one sidecar, made within a running event loop. `on_change` is called with each changed job."""

    def __init__(
        self, tools: JobTools, serves: Callable[[str], bool], *, max_running: int, file: StateFile | None = None
    ) -> None:
        """`serves`: whether the backend gets a topic's records or dead letters anyway. `file`: the state file, in which
        jobs outlive the process."""
        self._tools = tools
        self._serves = serves
        self._running = asyncio.Semaphore(max_running)
        self._file = file
        self._writer = None if file is None else StateWriter(file, self._encoded)
        self._saved_at = 0.0
        self._entries: dict[str, _Entry] = {}
        self.on_change: Callable[[Job], None] = lambda job: None

    def __iter__(self) -> Iterator[Job]:
        """The newest first."""
        return (entry.job for entry in reversed(self._entries.values()))

    def get(self, id_: str) -> Job | None:
        entry = self._entries.get(id_)
        return None if entry is None else entry.job

    def check(self, spec: JobSpec) -> None:
        """Checks a request. RefusedError when the request cannot become a job of this sidecar."""
        check(spec, serves=self._serves)

    async def start(self, spec: JobSpec, id_: str = "") -> Job:
        """Starts a job that this sidecar owns. The job is on disk when this returns. RefusedError, TooManyJobsError.

        `id_` makes the call idempotent, as long as the job is remembered.
        """
        if id_ in self._entries:
            return self._entries[id_].job
        self.check(spec)
        job = self._added(Job(id_ or uuid.uuid4().hex[:12], spec, _now()))
        await self._saved()
        self._run(self._entries[job.id])
        return job

    def take(self, job: Job) -> Job:
        """Takes a job from control, with its progress. If the sidecar has the job, it goes on, or stays ended."""
        entry = self._entries.get(job.id)
        if entry is None:
            try:
                self.check(job.spec)
                self._added(job)
            except (RefusedError, TooManyJobsError) as refused:
                self._entries[job.id] = _Entry(job)
                self._end(job, JobState.FAILED, str(refused))
                return job
            entry = self._entries[job.id]
        if entry.running is None and not entry.job.state.is_end:
            self._run(entry)
        return entry.job

    async def cancel(self, id_: str) -> Job | None:
        """Ends the job at its present offsets; acknowledged records stay acknowledged. None if the job is unknown."""
        entry = self._entries.get(id_)
        if entry is None:
            return None
        if not entry.job.state.is_end:
            entry.cancelled = True
            await self._stopped(entry)
            if not entry.job.state.is_end:
                self._end(entry.job, JobState.CANCELLED, f"cancelled after {entry.job.records} records")
            await self._saved()
        return entry.job

    async def hold(self) -> None:
        """Stops control's jobs until control gives them again: silent control may give them to other sidecars."""
        held = [one for one in self._entries.values() if one.job.by_control and one.running is not None]
        await asyncio.gather(*(self._stopped(one) for one in held))
        for one in held:
            if not one.job.state.is_end:
                self._stands(one.job, JobState.PENDING, "waits for control")

    def drop(self, id_: str) -> None:
        """Forgets a job that another sidecar has now; this sidecar reports nothing more of it."""
        entry = self._entries.pop(id_, None)
        if entry is not None and entry.running is not None:
            entry.running.cancel()
        self._count()

    async def restore(self) -> None:
        """Continues the jobs that the process before this one did not end. OSError from the disk."""
        content = None if self._file is None else await asyncio.to_thread(self._file.load)
        if content is None:
            return
        assert self._file is not None
        try:
            found = decoded(content)
        except ValueError as error:
            await asyncio.to_thread(self._file.set_aside, str(error))
            return
        for job in found:
            self._entries[job.id] = entry = _Entry(job)
            if not job.state.is_end:
                job.state = JobState.PENDING
                self._run(entry)
        self._count()

    async def close(self) -> None:
        """Stops the jobs in this process; no job ends thereby."""
        entries = list(self._entries.values())
        await asyncio.gather(*(self._stopped(one) for one in entries))
        await self._saved()
        if self._writer is not None:
            self._writer.close()

    def _added(self, job: Job) -> Job:
        still_open = [entry.job for entry in self._entries.values() if not entry.job.state.is_end]
        if len(still_open) >= MAX_OPEN:
            raise TooManyJobsError(f"{MAX_OPEN} jobs run or wait already; cancel one, or wait for an end")
        rival = next((one for one in still_open if one.group == job.group), None)
        if rival is not None:
            raise RefusedError(
                f"group {job.group} keeps how far job {rival.id} is; wait for its end, or name another group"
            )
        self._entries[job.id] = _Entry(job)
        self._count()
        return job

    def _run(self, entry: _Entry) -> None:
        entry.running = asyncio.create_task(self._carry_out(entry), name=f"job {entry.job.id}")

    async def _carry_out(self, entry: _Entry) -> None:
        job = entry.job
        async with self._running:
            self._stands(job, JobState.RUNNING, "")
            run = JobRun(job, self._tools, lambda: self._changed(job))
            try:
                description = await run.carry_out()
            except RefusedError as refused:
                self._end(job, JobState.FAILED, str(refused))
            except Exception:
                log.exception("a job ended by surprise", job=job.id)
                self._end(job, JobState.FAILED, "unexpected failure; the sidecar's log has the reason")
            else:
                self._end(job, JobState.DONE, description)
            finally:
                run.close()

    async def _stopped(self, entry: _Entry) -> None:
        running, entry.running = entry.running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running], timeout=STOP_SECONDS)

    def _stands(self, job: Job, state: JobState, description: str) -> None:
        job.state, job.description = state, description
        self._changed(job)
        self._count()

    def _end(self, job: Job, state: JobState, description: str) -> None:
        job.ended = _now()
        self._stands(job, state, description)
        metrics.ended_jobs.labels(state.value).inc()
        tell = log.warning if state is JobState.FAILED else log.info
        tell("a job ended", job=job.id, state=state.value, description=description)
        ended = [id_ for id_, entry in self._entries.items() if entry.job.state.is_end]
        for id_ in ended[:-KEPT_ENDS]:
            del self._entries[id_]
        if self._writer is not None:
            self._writer.soon()

    def _changed(self, job: Job) -> None:
        now = time.monotonic()
        if self._writer is not None and not job.by_control and now - self._saved_at >= SAVE_SECONDS:
            self._saved_at = now
            self._writer.soon()
        self.on_change(job)

    async def _saved(self) -> None:
        if self._writer is not None:
            await self._writer.written()

    def _encoded(self) -> bytes:
        return encoded([entry.job for entry in self._entries.values() if not entry.job.by_control])

    def _count(self) -> None:
        for state in (JobState.PENDING, JobState.RUNNING):
            count = sum(entry.job.state is state for entry in self._entries.values())
            metrics.open_jobs.labels(state.value).set(count)


def _now() -> int:
    return time.time_ns() // 1_000_000
