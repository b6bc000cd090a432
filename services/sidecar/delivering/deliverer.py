"""Has batches processed by the backend: calls, waits, calls again, until each record has its verdict.

`progress` decides on the next call and on the effect of an answer; `circuit` decides whether the backend may be called;
this module connects both with HTTP. Several deliverers may share one backend and its circuit, each with its own policy.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import structlog

from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.delivering.answers import Answer, AnswerError, read_answer
from services.sidecar.delivering.backend import Backend
from services.sidecar.delivering.batch import Batch, Deliverable, ReplyRecord, Settlement
from services.sidecar.delivering.call_writer import CallWriter
from services.sidecar.delivering.circuit import Circuit, CircuitSettings, CircuitState, Permit
from services.sidecar.delivering.failures import TOO_MANY_REQUESTS, UNAVAILABLE, Blame, CallFailedError
from services.sidecar.delivering.gate import Gate
from services.sidecar.delivering.policy import DeliveryPolicy
from services.sidecar.delivering.progress import Ask, Progress
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.delivering.routing import ContentRouting
from services.sidecar.delivering.tracing import DeliveryTrace
from services.sidecar.records import RawRecord
from services.sidecar.telemetry import metrics

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

REGISTRY_PAUSE_SECONDS = 1.0
"""The pause between attempts to write replies while the registry is away. The backend is not called again for that."""

log = structlog.get_logger(__name__)


class UndeliveredError(Exception):
    """The deliverer was stopped before each record had its verdict. Nothing of the batch may be committed."""


class Target:
    """One backend with its circuit, shared by all deliverers."""

    def __init__(
        self,
        backend: Backend,
        writer: CallWriter,
        circuit: CircuitSettings = CircuitSettings(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
        routing: ContentRouting = ContentRouting(),  # noqa: B008  # of no rules
        subscription: str = "",
        tracer: "Tracer | None" = None,
    ) -> None:
        """`subscription`: its name, for the metric of the circuit. `tracer`: None if nothing is traced."""
        self.backend = backend
        self.tracer = tracer
        self.writer = writer
        self.circuit = Circuit(circuit, clock)
        self.gate = Gate(self.circuit)
        self.routing = routing
        """The rules that choose each record's path; may be changed at any time."""
        self._state_metric = metrics.backend_circuit.labels(subscription)

    def path(self, record: Deliverable) -> str | None:
        """The path of a record; empty for the usual path; None if the record does not concern the backend."""
        return self.routing(record)

    async def fault(self) -> str | None:
        """Why the backend is not called now; None when it is. For readiness."""
        if self.circuit.state is CircuitState.CLOSED:
            return None
        return f"the backend is not called for now: {self.circuit.reason}"

    def look(self) -> None:
        """Publishes the circuit's state: waiting callers check it again, and the metric shows it."""
        self._state_metric.set(self.circuit.state.value)
        self.gate.look()


class Deliverer:
    """Delivers batches by one policy. Any number of batches at once; the caller bounds the number."""

    def __init__(self, target: Target, policy: DeliveryPolicy, replies: ReplyWriter) -> None:
        self.target = target
        self.policy = policy
        """May be changed at any time; the change holds for batches that begin later."""
        self._replies = replies
        self._stop_at: float | None = None
        self._open: dict[asyncio.Timeout, bool] = {}
        """The open waits, each with whether a stop may end the wait."""

    async def deliver(self, batch: Batch) -> Settlement:
        """Returns when each record has its verdict, however long that takes.

        UndeliveredError if the deliverer is stopped.
        """
        tracer = self.target.tracer
        if tracer is None or (trace := DeliveryTrace.begun(tracer, batch)) is None:
            return await self._delivered(batch)
        with trace:
            return await self._delivered(batch, trace)

    async def _delivered(self, batch: Batch, trace: "DeliveryTrace | None" = None) -> Settlement:
        progress = Progress(batch, self.policy)
        mark: int | None = None
        """The number of calls that had passed when this batch's last call failed; None if that call did not fail."""
        while (ask := progress.ask) is not None:
            if self._stop_at is not None:
                raise UndeliveredError("the deliverer was stopped")
            async with self._until_stopped():
                permit = await self.target.gate.enter()
            try:
                pause, mark = await self._attempt(batch, ask, progress, permit, mark, trace)
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
        self,
        batch: Batch,
        ask: Ask,
        progress: Progress,
        permit: Permit,
        mark: int | None,
        trace: "DeliveryTrace | None",
    ) -> tuple[float, int | None]:
        """Makes one call; the seconds to wait, and the mark for the next call."""
        circuit = self.target.circuit
        turns = circuit.turns
        try:
            answer, replies, common = await self._called(batch, ask, permit, trace)
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
        self, batch: Batch, ask: Ask, permit: Permit, trace: "DeliveryTrace | None"
    ) -> tuple[Answer, list[Sequence[ReplyRecord]], Sequence[ReplyRecord]]:
        """The answer, with its replies in the form for Kafka. CallFailedError."""
        writer = self.target.writer
        headers = writer.headers(ask)
        async with self._until_stopped(finishes=True):
            with nullcontext() if trace is None else trace.call(ask, headers):
                content = await self.target.backend.call(batch.path, writer.body(ask), headers)
        try:
            answer = read_answer(content, len(ask.records))
            self.target.circuit.answered(permit)  # the backend has finished; its replies may still be unwritten
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
        """Whether the failure may be the records' fault.

        That is so if the backend refuses the records, or seems to be well. `turns`: the circuit's number when the call
        began.
        """
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
        """Logs new failures as warnings, and repeated ones quietly: an outage of a day must not fill the disk."""
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
