"""One transactional id: its producer, its topic of answers, its thread; one transaction at a time.

If a producer is lost, the next producer with the same id ends the open transaction, and reads the committed answers. So
even after a commit that Kafka did not answer, a request with an Idempotency-Key gets the right answer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaException

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.producing.delivery import CLIENT_FAILURES, error_of
from services.sidecar.producing.idempotency import IdempotencyKey, KeptAnswer, KeptAnswers
from services.sidecar.producing.transaction_log import TransactionLog
from services.sidecar.producing.transactional_client import (
    Lost,
    NotWritten,
    Seal,
    TopicRecords,
    TransactionalClient,
)
from services.sidecar.records import Delivered, WriteOutcome
from services.sidecar.telemetry import metrics

ATTEMPTS = 3
"""The number of producers that try one request. The bound ends the fight of two sidecars that fence each other with one
id."""
LOOK_UP_SECONDS = 5.0
"""The longest time to find or make the topic of answers."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request."""

    outcomes: Sequence[Sequence[WriteOutcome]]
    body: bytes
    replayed: bool = False
    """Whether this is the answer to an earlier request with the same key."""


@dataclass(frozen=True, slots=True)
class Work:
    """One request."""

    entries: Sequence[TopicRecords]
    render: Callable[[Sequence[Sequence[WriteOutcome]]], bytes]
    """Makes the body of the answer from the outcomes."""
    key: IdempotencyKey | None = None

    @property
    def topics(self) -> list[str]:
        return sorted({entry.topic for entry in self.entries})


class TransactionWriter:
    """The writer with one transactional id."""

    def __init__(
        self,
        transactional_id: str,
        properties: Callable[[], dict[str, Any]],
        answers: TransactionLog,
        kept: KeptAnswers,
    ) -> None:
        self.id = transactional_id
        self._properties = properties
        self._log = answers
        self._kept = kept
        self._knows_log = False
        self._client: TransactionalClient | None = None
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, f"transactions-{transactional_id}")

    async def write(self, work: Work, seconds: float) -> Answered:
        """Writes a request, in its turn. Elsewhere when this id cannot write to these topics."""
        async with self._alone(seconds):
            with metrics.transaction_seconds.time():
                return await self._written(work, time.monotonic() + seconds)

    async def learn_answers(self, seconds: float) -> None:
        """Reads all answers that this id has given. Fault when they cannot be read."""
        if self._knows_log:
            return
        async with self._alone(seconds):
            try:
                await self._ready(seconds, with_log=True)
            except Lost as lost:
                await self._give_up(lost)
                raise self._undone(lost, certain=True) from None
            except CLIENT_FAILURES as failure:
                raise self._undone(error_of(failure).str(), certain=True) from None

    @asynccontextmanager
    async def _alone(self, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                await self._lock.acquire()
        except TimeoutError:
            metrics.transactions.labels("turned away").inc()
            raise Fault(
                FaultKind.TRANSACTIONS_BUSY, f"no turn within {seconds:g} s (transaction_timeout_ms); send again later"
            ) from None
        try:
            yield
        finally:
            self._lock.release()

    def interrupt(self) -> None:
        """Makes a call that waits for Kafka give up soon."""
        if self._client is not None:
            self._client.interrupt()

    async def close(self, timeout: float) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            closing = asyncio.ensure_future(self._run(client.close))
            await asyncio.wait([closing], timeout=timeout)
        self._thread.shutdown(wait=False)

    async def _written(self, work: Work, deadline: float) -> Answered:
        for attempt in range(1, ATTEMPTS + 1):
            left = deadline - time.monotonic()
            try:
                client = await self._ready(left, with_log=work.key is not None)
                if work.key is not None and (kept := self._kept.find(work.key.key, _now_ms())):
                    must_be_the_same(work.key, kept.digest)
                    metrics.replayed_answers.inc()
                    return Answered([], kept.answer, replayed=True)
                return await self._once(client, work, max(deadline - time.monotonic(), 0))
            except Lost as lost:
                await self._give_up(lost)
                # with a key, the topic of answers has the outcome of the request; without a key, nothing has
                may_go_on = lost.certain or work.key is not None
                if not may_go_on or attempt == ATTEMPTS or time.monotonic() >= deadline:
                    raise self._undone(lost, certain=lost.certain) from None
            except CLIENT_FAILURES as failure:
                raise self._undone(error_of(failure).str(), certain=True) from None
        raise AssertionError("unreachable")

    async def _ready(self, timeout: float, *, with_log: bool) -> TransactionalClient:
        """The opened producer; with `with_log`, all answers that were committed before are known."""
        if self._client is None:
            self._client = await self._run(TransactionalClient, self._properties())
            self._knows_log = False
            await self._run(self._client.open, timeout)
        if with_log and not self._knows_log:
            await self._run(self._make_log, min(timeout, LOOK_UP_SECONDS))
            await self._run(self._log.read, lambda key, answer: self._kept.keep(key, answer, _now_ms()), timeout)
            self._knows_log = True
        return self._client

    def _make_log(self, timeout: float) -> None:
        try:
            self._log.make(timeout)
        except KafkaException as failure:
            raise Fault(
                FaultKind.TRANSACTION_NOT_DONE,
                f"Topic {self._log.topic}, for the answers to requests with an Idempotency-Key, is missing and cannot "
                f"be made ({failure.args[0].str()}). Make it with one partition, or let the sidecar: through a mesh it "
                "needs a rule",
            ) from None

    async def _once(self, client: TransactionalClient, work: Work, timeout: float) -> Answered:
        at_ms = _now_ms()
        body = b""

        def seal(written: list[list[Delivered]]) -> Seal:
            nonlocal body
            body = work.render(written)
            assert work.key is not None
            kept = KeptAnswer(work.key.digest, body, at_ms)
            return Seal(self._log.topic, work.key.key.encode(), kept.encoded())

        try:
            written = await self._run(client.write, work.entries, timeout, None if work.key is None else seal)
        except NotWritten as aborted:
            metrics.transactions.labels("aborted").inc()
            return Answered(aborted.outcomes, work.render(aborted.outcomes))
        metrics.transactions.labels("committed").inc()
        if work.key is None:
            return Answered(written, work.render(written))
        self._kept.keep(work.key.key, KeptAnswer(work.key.digest, body, at_ms), at_ms)
        return Answered(written, body)

    async def _give_up(self, lost: Lost) -> None:
        """Closes the lost producer; the next request opens a new producer."""
        metrics.producer_restarts.inc()
        log.warning("transactional producer lost", transactional_id=self.id, why=str(lost), fenced=lost.fenced)
        client, self._client = self._client, None
        self._knows_log = False
        if client is not None:
            await self._run(client.close)

    def _undone(self, why: object, *, certain: bool) -> Fault:
        metrics.transactions.labels("failed" if certain else "unknown").inc()
        known = "Nothing was written" if certain else "Kafka did not say whether the records were written"
        return Fault(
            FaultKind.TRANSACTION_NOT_DONE,
            f"{known}: {why}. Send it again later"
            + ("" if certain else "; with an Idempotency-Key it cannot be written twice"),
        )

    async def _run(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args))


def must_be_the_same(key: IdempotencyKey, digest: str) -> None:
    if digest != key.digest:
        raise Fault(
            FaultKind.IDEMPOTENCY_KEY_REUSED,
            f"Idempotency-Key {key.key!r} came before, with another request; take a new key for each request",
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
