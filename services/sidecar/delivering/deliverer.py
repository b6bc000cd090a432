"""Has batches processed by the backend: calls, waits, calls again, until each record has its verdict.

What is asked next and what follows from an answer is `progress`, whether the backend may be called is `circuit`; here
they meet HTTP. Several may deliver to one backend, each by its own policy: they share its circuit.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import structlog

from services.sidecar import metrics
from services.sidecar.delivering.answers import Answer, AnswerError, read_answer
from services.sidecar.delivering.asking import CallWriter
from services.sidecar.delivering.backend import Backend
from services.sidecar.delivering.circuit import Circuit, CircuitSettings, CircuitState, Permit
from services.sidecar.delivering.failures import TOO_MANY_REQUESTS, UNAVAILABLE, Blame, CallFailedError
from services.sidecar.delivering.gate import Gate
from services.sidecar.delivering.policy import DeliveryPolicy
from services.sidecar.delivering.progress import Ask, Progress
from services.sidecar.delivering.records import Batch, Deliverable, RawRecord, ReplyRecord, Settlement
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.delivering.routing import ContentRouting
from services.sidecar.schemas.schema import RegistryUnavailableError

REGISTRY_PAUSE_SECONDS = 1.0
"""Between attempts to write replies whose schema nobody can look up now; the backend is not asked again for it."""

log = structlog.get_logger(__name__)


class UndeliveredError(Exception):
    """The deliverer was stopped before each record had its verdict. Nothing of the batch may be committed."""


class Target:
    """One backend, and whether it may be called; shared by all who deliver to it."""

    def __init__(
        self,
        backend: Backend,
        writer: CallWriter,
        circuit: CircuitSettings = CircuitSettings(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
        routing: ContentRouting = ContentRouting(),  # noqa: B008  # of no rules
    ) -> None:
        self.backend = backend
        self.writer = writer
        self.circuit = Circuit(circuit, clock)
        self.gate = Gate(self.circuit)
        self.routing = routing
        """Which path records take; may be changed at any time."""

    def path(self, record: Deliverable) -> str | None:
        """Where a record goes, empty for the usual path; None where it does not concern the backend."""
        return self.routing(record)

    async def fault(self) -> str | None:
        """Why the backend is not called now; None when it is. For readiness."""
        if self.circuit.state is CircuitState.CLOSED:
            return None
        return f"the backend is not called for now: {self.circuit.reason}"

    def look(self) -> None:
        """Whatever happened to the circuit: who waits for it goes on, and metrics know."""
        metrics.backend_circuit.set(self.circuit.state.value)
        self.gate.look()


class Deliverer:
    """Of one who delivers. Any number of batches at once; bounding them is up to the caller."""

    def __init__(self, target: Target, policy: DeliveryPolicy, replies: ReplyWriter) -> None:
        self.target = target
        self.policy = policy
        """May be changed at any time; for batches that begin from then on."""
        self._replies = replies
        self._stop_at: float | None = None
        self._open: dict[asyncio.Timeout, bool] = {}
        """What is waited for; whether it may end after a stop."""

    async def deliver(self, batch: Batch) -> Settlement:
        """Returns when each record has its verdict, however long that takes. UndeliveredError when it is stopped."""
        progress = Progress(batch, self.policy)
        mark: int | None = None
        """How many calls had passed when the last one of ours failed; None when it did not."""
        while (ask := progress.ask) is not None:
            if self._stop_at is not None:
                raise UndeliveredError("the deliverer was stopped")
            async with self._until_stopped():
                permit = await self.target.gate.enter()
            try:
                pause, mark = await self._attempt(batch, ask, progress, permit, mark)
            finally:
                self.target.circuit.abandoned(permit)
                self.target.look()
            if pause:
                async with self._until_stopped():
                    await asyncio.sleep(pause)
        return progress.settlement()

    async def stop(self, timeout: float = 0.0) -> None:
        """No call begins any more; those on their way have so many seconds. Batches that are not done are given up."""
        loop = asyncio.get_running_loop()
        self._stop_at = loop.time() + timeout
        for bound, finishes in self._open.items():
            if not bound.expired():
                bound.reschedule(self._stop_at if finishes else loop.time())

    async def _attempt(
        self, batch: Batch, ask: Ask, progress: Progress, permit: Permit, mark: int | None
    ) -> tuple[float, int | None]:
        """One call, and what follows from it: seconds to wait, and the mark for the next one."""
        circuit = self.target.circuit
        turns = circuit.turns
        try:
            answer, replies, common = await self._called(batch, ask, permit)
        except CallFailedError as failure:
            others_passed = mark is not None and circuit.passes > mark
            counts = await self._counts(failure, turns, others_passed=others_passed)
            pause, given_up = progress.failed(failure, counts=counts)
            self._tell_circuit(permit, failure, pause, counts=counts)
            if failure.blame is Blame.RECORDS:
                circuit.refused(given_up, failure.reason)
            if failure.blame is Blame.UNCLEAR and not others_passed:
                circuit.gave_up(given_up)
            metrics.backend_retries.labels(failure.blame.value).inc()
            self._log(batch, ask, failure, counts=counts)
            return pause, None if given_up else circuit.passes
        circuit.passed(permit)
        pause = progress.answered(answer, replies, common)
        if pause:
            metrics.backend_retries.labels("answer").inc()
        return pause, None

    async def _called(
        self, batch: Batch, ask: Ask, permit: Permit
    ) -> tuple[Answer, list[Sequence[ReplyRecord]], Sequence[ReplyRecord]]:
        """The answer, with what it wants written as Kafka gets it. CallFailedError."""
        writer = self.target.writer
        async with self._until_stopped(finishes=True):
            content = await self.target.backend.call(batch.path, writer.body(ask), writer.headers(ask))
        try:
            answer = read_answer(content, len(ask.records))
            self.target.circuit.answered(permit)  # it is done with us, whatever it takes to write its replies
            self.target.look()
            replies: list[Sequence[ReplyRecord]] = [()] * len(ask.records)
            for place, result in enumerate(answer.results):
                if result.produce and result.said.is_well:
                    replies[place] = await self._written(result.produce, f"result {place}", ask.records[place].raw)
            common = await self._written(answer.produce, "the answer") if answer.produce else ()
        except AnswerError as error:
            raise CallFailedError(
                f"a bad answer of the backend: {error}", Blame.UNCLEAR, outcome="bad_answer"
            ) from None
        return answer, replies, common

    async def _written(self, produce: Sequence[object], where: str, to: RawRecord | None = None) -> list[ReplyRecord]:
        """Replies as Kafka gets them; waits for the registry where it has to be asked."""
        is_told = False
        while True:
            try:
                async with self._until_stopped(finishes=True):
                    return await self._replies.written(produce, where, to)
            except RegistryUnavailableError as error:
                if not is_told:
                    log.warning("replies of the backend wait for the schema registry", reason=str(error))
                    is_told = True
            async with self._until_stopped():
                await asyncio.sleep(REGISTRY_PAUSE_SECONDS)

    async def _counts(self, failure: CallFailedError, turns: int, *, others_passed: bool) -> bool:
        """Whether it may be the records' fault: the backend refuses them, or is well as far as can be known. `turns`:
        of the circuit when the call began."""
        circuit = self.target.circuit
        match failure.blame:
            case Blame.RECORDS:
                return True
            case Blame.BACKEND:
                return False
            case Blame.UNCLEAR:
                if circuit.turns != turns:
                    return False
                if others_passed:
                    return True
                if not circuit.believes_in_poison:
                    return False
                async with self._until_stopped(finishes=True):
                    is_alive = await self.target.backend.is_alive()
                return is_alive and circuit.turns == turns  # others may have failed meanwhile

    def _tell_circuit(self, permit: Permit, failure: CallFailedError, pause: float, *, counts: bool) -> None:
        circuit = self.target.circuit
        told = failure.retry_after
        seconds = pause if told is None else min(told, self.policy.max_retry_after)
        if failure.outcome == str(TOO_MANY_REQUESTS):
            circuit.busy(permit, seconds, failure.reason)
        elif counts:
            circuit.answered(permit)
        else:
            circuit.failed(permit, failure.reason)
            if failure.outcome == str(UNAVAILABLE) and told is not None:
                circuit.busy(permit, seconds, failure.reason)

    def _log(self, batch: Batch, ask: Ask, failure: CallFailedError, *, counts: bool) -> None:
        """Loudly what is new; a backend that is away for a day does not fill the disk."""
        say = log.warning if ask.attempt == 1 else log.debug
        say(
            "a call to the backend failed, and is repeated", partition=str(batch.partition),
            first=ask.records[0].raw.offset, last=ask.records[-1].raw.offset, records=len(ask.records),
            attempt=ask.attempt, reason=failure.reason, counts=counts,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def _until_stopped(self, *, finishes: bool = False) -> AsyncIterator[None]:
        """UndeliveredError when the deliverer is stopped meanwhile; `finishes`: not before the time is over."""
        now = asyncio.get_running_loop().time()
        bound = asyncio.timeout_at(None if self._stop_at is None else self._stop_at if finishes else now)
        self._open[bound] = finishes
        try:
            async with bound:
                yield
        except TimeoutError:
            if not bound.expired():
                raise
            raise UndeliveredError("the deliverer was stopped") from None
        finally:
            del self._open[bound]
