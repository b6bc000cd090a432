"""Transactions for whoever asks, one at a time for each transactional id; and requests that are carried out once.

A transactional id has one home cluster in a mesh. So there may be several ids: the first whose home has all topics of a
request is used, and remembered for them. A request with an Idempotency-Key has its answer written in the same
transaction (`transaction_log.py`). When a producer is lost the next one, with the same id, ends what it left open and
reads what was committed; so even after a commit that nobody answered it is known what to say.

All of it belongs to the event loop; what blocks runs on the one thread of its id.
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

from services.sidecar import metrics
from services.sidecar.auditing.events import AuditType, produced
from services.sidecar.auditing.trail import OFF, AuditTrail
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.producing.delivery import CLIENT_FAILURES, error_of
from services.sidecar.producing.idempotency import IdempotencyKey, KeptAnswer, KeptAnswers
from services.sidecar.producing.records import Delivered, Delivery, DeliveryError, Failed
from services.sidecar.producing.transaction_log import TransactionLog
from services.sidecar.producing.transactional_client import (
    CLOSE_SECONDS,
    Elsewhere,
    Lost,
    NotWritten,
    Seal,
    TopicRecords,
    TransactionalClient,
)
from services.sidecar.traffic import NO_TRAFFIC, SidecarTraffic

ATTEMPTS = 3
"""A producer that is lost makes way for a new one. Two sidecars with one id would take it from each other for ever."""
MAX_REMEMBERED_TOPICS = 10_000
LOOK_UP_SECONDS = 5.0
"""To find or make the topic of answers."""

NOT_DONE = Failed(DeliveryError.RETRIABLE, "the transaction was not done")
T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds."""

    max_waiting: int
    seconds: float
    """For one transaction, and for the wait for its turn."""
    keep_ms: int
    max_keys: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What a request gets to hear."""

    outcomes: Sequence[Sequence[Delivery]]
    body: bytes
    replayed: bool = False
    """It is the answer to an earlier request with the same key."""


@dataclass(frozen=True, slots=True)
class Work:
    """One request."""

    entries: Sequence[TopicRecords]
    render: Callable[[Sequence[Sequence[Delivery]]], bytes]
    """The answer, when it is known how it went."""
    key: IdempotencyKey | None = None

    @property
    def topics(self) -> list[str]:
        return sorted({entry.topic for entry in self.entries})


class Transactions:
    """For the whole sidecar. Nothing is opened before somebody asks."""

    def __init__(
        self,
        properties: Callable[[str], dict[str, Any]],
        plain: dict[str, Any],
        ids: Sequence[str],
        limits: TransactionLimits,
        audit: AuditTrail = OFF,
        traffic: SidecarTraffic = NO_TRAFFIC,
    ) -> None:
        """`properties`: of a producer with a transactional id; `plain`: of any other client."""
        self._limits = limits
        self._audit = audit
        self._traffic = traffic
        self._kept = KeptAnswers(keep_ms=limits.keep_ms, max_keys=limits.max_keys, max_bytes=limits.max_bytes)
        self._lanes = [
            _Lane(
                one,
                partial(properties, one),
                TransactionLog(f"{one}.idempotency", plain, keep_ms=limits.keep_ms),
                self._kept,
            )
            for one in ids
        ]
        self._homes: dict[str, _Lane] = {}
        self._running: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self._waiting = 0
        self._tasks: set[asyncio.Task[Answered]] = set()
        self._stopping = False

    async def write(self, work: Work) -> Answered:
        """All records or none. Fault when it is refused, or when nobody can tell; see `Answered` for the rest."""
        if self._stopping or self._waiting >= self._limits.max_waiting:
            metrics.transactions.labels("turned away").inc()
            why = "the sidecar is stopping" if self._stopping else f"{self._waiting} requests wait already"
            raise Fault(FaultKind.TRANSACTIONS_BUSY, f"{why} (max_waiting_transactions); send again later")
        self._waiting += 1
        metrics.waiting_transactions.set(self._waiting)
        task = asyncio.create_task(self._counted(work))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)  # a caller that goes away must not leave a transaction half done

    async def stop(self, timeout: float) -> None:
        """Lets what has begun end, `timeout` seconds at most."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        for lane in self._lanes:
            lane.interrupt()
        await asyncio.gather(*(lane.close(CLOSE_SECONDS) for lane in self._lanes))

    def _done(self, task: "asyncio.Task[Answered]") -> None:
        self._tasks.discard(task)
        self._waiting -= 1
        metrics.waiting_transactions.set(self._waiting)
        if not task.cancelled():
            task.exception()  # its caller may have gone

    async def _counted(self, work: Work) -> Answered:
        began = time.monotonic()
        outcomes: Sequence[Sequence[Delivery]] = [[NOT_DONE]] * len(work.entries)
        try:
            answered = await self._audited(work)
            outcomes = answered.outcomes
        finally:
            for entry, deliveries in zip(work.entries, outcomes, strict=False):  # none of an answer that is replayed
                self._traffic.transacted(entry.topic, entry.records, deliveries, time.monotonic() - began)
        return answered

    async def _audited(self, work: Work) -> Answered:
        if not self._audit.wants(AuditType.PRODUCER):
            return await self._answered(work)
        if not await self._audit.room(self._limits.seconds):
            metrics.transactions.labels("turned away").inc()
            raise Fault(FaultKind.TRANSACTIONS_BUSY, f"{await self._audit.fault()}; send again later")
        try:
            answered = await self._answered(work)
        except Fault as fault:
            why = Failed(DeliveryError.RETRIABLE, fault.description)
            self._record(work, [[why] * len(entry.records) for entry in work.entries])
            raise
        self._record(work, answered.outcomes)  # none of an answer that was given before
        return answered

    def _record(self, work: Work, outcomes: Sequence[Sequence[Delivery]]) -> None:
        for entry, deliveries in zip(work.entries, outcomes, strict=False):
            self._audit.record(produced(entry.topic, entry.records, deliveries))

    async def _answered(self, work: Work) -> Answered:
        if work.key is None:
            return await self._on_a_home(work)
        async with self._alone(work.key):
            return await self._on_a_home(work)

    @asynccontextmanager
    async def _alone(self, key: IdempotencyKey) -> AsyncIterator[None]:
        """While nobody else works under this key."""
        deadline = time.monotonic() + self._limits.seconds
        while key.key in self._running:
            digest, running = self._running[key.key]
            _must_be_the_same(key, digest)
            await asyncio.wait([running], timeout=max(deadline - time.monotonic(), 0))
            if not running.done():
                raise Fault(
                    FaultKind.TRANSACTIONS_BUSY,
                    f"Idempotency-Key {key.key!r}: its first request is still being carried out; send again later",
                )
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running[key.key] = (key.digest, ended)
        try:
            yield
        finally:
            del self._running[key.key]
            ended.set_result(None)

    async def _on_a_home(self, work: Work) -> Answered:
        """On the first id whose home has all topics."""
        told = ""
        for lane in self._lanes_for(work.topics):
            try:
                answered = await lane.write(work, self._limits.seconds)
            except Elsewhere as refused:
                told = f"{', '.join(refused.topics)}: {refused}"
                for topic in work.topics:
                    if self._homes.get(topic) is lane:
                        del self._homes[topic]
                continue
            self._remember(work.topics, lane)
            return answered
        metrics.transactions.labels("refused").inc()
        raise Fault(
            FaultKind.TRANSACTION_REFUSED,
            f"Topics {', '.join(work.topics)} cannot be written in one transaction as "
            f"{', '.join(lane.id for lane in self._lanes)}: one of them lives on another cluster than that id, or may "
            f"not be written ({told}). A transaction lives on one cluster: give the topics, or the transactional id, a "
            "rule that leads there, or name an id with that home in transactional_ids",
        )

    def _lanes_for(self, topics: Sequence[str]) -> "list[_Lane]":
        """The one that served all these topics before comes first."""
        homes = {self._homes.get(topic) for topic in topics}
        return sorted(self._lanes, key=lambda lane: homes != {lane})

    def _remember(self, topics: Sequence[str], lane: "_Lane") -> None:
        if len(self._homes) + len(topics) > MAX_REMEMBERED_TOPICS:
            self._homes.clear()
        self._homes.update(dict.fromkeys(topics, lane))


class _Lane:
    """One transactional id: its producer, its topic of answers, its thread."""

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
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, f"transactions-{transactional_id}")

    async def write(self, work: Work, seconds: float) -> Answered:
        """Waits for its turn. Elsewhere when this id cannot write to these topics."""
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            metrics.transactions.labels("turned away").inc()
            raise Fault(
                FaultKind.TRANSACTIONS_BUSY, f"no turn within {seconds:g} s (transaction_timeout_ms); send again later"
            ) from None
        try:
            with metrics.transaction_seconds.time():
                return await self._written(work, time.monotonic() + seconds)
        finally:
            self._turn.release()

    def interrupt(self) -> None:
        """What waits for Kafka gives up soon."""
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
                    _must_be_the_same(work.key, kept.digest)
                    metrics.replayed_answers.inc()
                    return Answered([], kept.answer, replayed=True)
                return await self._once(client, work, max(deadline - time.monotonic(), 0))
            except Lost as lost:
                await self._give_up(lost)
                # with a key the topic of answers tells what became of it; without one nobody does
                may_go_on = lost.certain or work.key is not None
                if not may_go_on or attempt == ATTEMPTS or time.monotonic() >= deadline:
                    raise self._undone(lost, certain=lost.certain) from None
            except CLIENT_FAILURES as failure:
                raise self._undone(error_of(failure).str(), certain=True) from None
        raise AssertionError("unreachable")

    async def _ready(self, timeout: float, *, with_log: bool) -> TransactionalClient:
        """The producer, opened; and, where it matters, all answers known that were committed before it."""
        if self._client is None:
            self._client = await self._run(TransactionalClient, self._properties())
            self._knows_log = False
            await self._run(self._client.open, timeout)
        if with_log and not self._knows_log:
            await self._run(self._make_log, min(timeout, LOOK_UP_SECONDS))
            for key, answer in await self._run(self._log.news, timeout):
                self._kept.keep(key, answer, _now_ms())
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
                f"needs a rule that leads to the home cluster of the transactional id {self.id}",
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
        """The next one to ask opens a new producer."""
        metrics.producer_restarts.inc()
        log.warning("transactional producer lost", transactional_id=self.id, why=str(lost), fenced=lost.fenced)
        client, self._client = self._client, None
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


def _must_be_the_same(key: IdempotencyKey, digest: str) -> None:
    if digest != key.digest:
        raise Fault(
            FaultKind.IDEMPOTENCY_KEY_REUSED,
            f"Idempotency-Key {key.key!r} came before, with another request; take a new key for each request",
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
