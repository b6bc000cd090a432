"""All jobs of this sidecar: some run, others wait for their turn, the last ones that ended are remembered.

1. A job that control knows is control's, which gives it to whoever shall carry it out, again to each process that
   begins. Any other stands in the state file, and goes on with the next process.
2. A job runs alone in its group: two that kept their place in one group would take it from each other.
3. The end of the process is no end of a job. What is held (`hold`) goes on when it is given again.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from services.sidecar import metrics
from services.sidecar.jobs.job import Job, JobSpec, JobState, RefusedError, check
from services.sidecar.jobs.job_store import decoded, encoded
from services.sidecar.jobs.run import JobRun, JobTools
from services.sidecar.state_file import StateFile, StateWriter

MAX_OPEN = 100
"""Jobs that run or wait; one more is refused."""
KEPT_ENDS = 100
"""Jobs that ended are remembered up to so many."""
STOP_SECONDS = 10.0
SAVE_SECONDS = 1.0
"""How often progress is written to the state file, at most. Kafka has it in any case."""

log = structlog.get_logger(__name__)


class TooManyJobsError(Exception):
    """No more jobs are taken in now; says how many there are."""


@dataclass(slots=True)
class _Entry:
    job: Job
    running: asyncio.Task[None] | None = None
    cancelled: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Jobs:
    """One for a sidecar, within a running loop. `on_change` is called with each job that is not as it was."""

    def __init__(
        self, tools: JobTools, serves: Callable[[str], bool], *, max_running: int, file: StateFile | None = None
    ) -> None:
        """`serves`: whether the backend gets records of a topic anyway. `file`: where jobs outlive the process."""
        self._tools = tools
        self._serves = serves
        self._turns = asyncio.Semaphore(max_running)
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
        """RefusedError when it cannot be a job here."""
        check(spec, serves=self._serves)

    async def start(self, spec: JobSpec, id_: str = "") -> Job:
        """A job of this sidecar's own; it is on disk when this returns. RefusedError, TooManyJobsError.

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
        """One that control has given, with how far it is. If it is here already, it goes on, or stays as it ended."""
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
        """Ends it where it is: what was acknowledged stays so. None when there is no such job."""
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
        """Control is not heard, and may give its jobs to others: they stop until they are given again."""
        held = [one for one in self._entries.values() if one.job.by_control and one.running is not None]
        await asyncio.gather(*(self._stopped(one) for one in held))
        for one in held:
            if not one.job.state.is_end:
                self._stands(one.job, JobState.PENDING, "waits for control")

    def drop(self, id_: str) -> None:
        """It is another's by now: nothing is to be told of it any more."""
        entry = self._entries.pop(id_, None)
        if entry is not None and entry.running is not None:
            entry.running.cancel()
        self._count()

    async def restore(self) -> None:
        """Jobs that the process before this one did not end go on. OSError from the disk."""
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
        """Jobs stop for this process; none of them ends by it."""
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
        async with self._turns:
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
