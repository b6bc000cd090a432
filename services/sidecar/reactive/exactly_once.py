"""Outcomes in one transaction with the group's offsets: replies and dead letters exist exactly if the offsets of their
records are committed.

Theory of operation
1. A settlement waits until no transaction is under way. Then all waiting settlements go into one transaction, which
   several partitions share.
2. An aborted transaction has written nothing. If it had several settlements, each of them is tried alone, so that a
   settlement that can't be written holds up no other partition. A settlement that fails alone is delivered again.
3. If the outcome of a commit is unknown, a new producer with the same id ends the transaction. The group's committed
   offsets then show whether it was committed.
4. Before the first delivery, `check` tests whether one transaction can hold all parts. These are the offsets of the
   source topics, replies and dead letters. A mesh refuses clusters before Kafka 3.0. The test writes nothing.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import structlog
from confluent_kafka import TopicPartition

from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.dead_letters.record import dead_letter_topic
from services.sidecar.dead_letters.topics import LetterTopics
from services.sidecar.delivering.batch import Settlement
from services.sidecar.delivering.writing import Writes
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.producing.transactional_client import (
    CLOSE_SECONDS,
    Elsewhere,
    GroupOffsets,
    Lost,
    NotWritten,
    TransactionalClient,
)
from services.sidecar.reactive.batch_processor import NotSettledError
from services.sidecar.reactive.session import Session
from services.sidecar.records import Partition
from services.sidecar.telemetry import metrics

MAX_TOGETHER = 100
"""Settlements of one transaction, at most."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class _Waiting:
    """One settlement, and the future that its caller awaits."""

    settlement: Settlement
    next_offset: int
    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    has_begun: bool = False


class TransactionalSettler:
    """The transactions of one consumer."""

    def __init__(
        self,
        properties: Callable[[], dict[str, Any]],
        dead_letters: DeadLetters,
        seconds: float,
        topics: LetterTopics | None,
        *,
        reply_topics: Sequence[str],
        extension: str,
    ) -> None:
        """`properties`: those of a producer with the transactional id. `seconds`: the bound of a transaction."""
        self._properties = properties
        self._dead_letters = dead_letters
        self._seconds = seconds
        self._topics = topics
        self._reply_topics = reply_topics
        self._extension = extension
        self._session: Session | None = None
        self._client: TransactionalClient | None = None
        self._thread = ThreadPoolExecutor(1, "reactive-transactions")
        self._waiting: list[_Waiting] = []
        self._working: asyncio.Task[None] | None = None
        self.problem = ""
        """The reason why the last transaction failed; empty if it was committed."""

    async def settle(self, settlement: Settlement, next_offset: int) -> None:
        """Returns when the settlement is committed. NotSettledError when no part of it is committed."""
        mine = _Waiting(settlement, next_offset)
        self._waiting.append(mine)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(), name="reactive transactions")
        try:
            await asyncio.shield(mine.done)
        except asyncio.CancelledError:
            if not mine.has_begun:
                self._waiting.remove(mine)
            else:  # the caller that cancels must wait for the end of the transaction
                await asyncio.wait([mine.done])
                if not mine.done.cancelled():
                    mine.done.exception()
            raise

    async def check(self, session: Session) -> None:
        """Raises Fault, with the names of the parts, when one transaction cannot hold all parts."""
        self._session = session
        sources = {one.topic for one in session.partitions}
        while not sources:
            await session.has_partitions(self._seconds)
            sources = {one.topic for one in session.partitions}
        if self._topics is not None:
            await self._topics.make_missing(sources)
        group = await session.group_metadata()
        letters = {dead_letter_topic(topic, self._extension) for topic in sources} if self._extension else set()
        consumed = GroupOffsets([TopicPartition(topic, 0, 0) for topic in sorted(sources)], group)
        await self._drop()
        properties = self._properties()
        # records must not be sent before their transaction is aborted
        properties["linger.ms"] = int(properties["message.timeout.ms"]) // 2
        client = TransactionalClient(properties)
        try:
            await self._run(client.open, self._seconds)
            for topic in (None, *sorted(letters | set(self._reply_topics))):
                await self._tried_out(client, topic, consumed)
        except Lost as lost:
            raise Fault(
                FaultKind.TRANSACTION_NOT_DONE,
                f"the transactional producer for reactive_exactly_once could not be checked: {lost}",
            ) from None
        finally:
            await self._run(client.close)

    async def _tried_out(self, client: TransactionalClient, topic: str | None, consumed: GroupOffsets) -> None:
        try:
            await self._run(client.try_out, topic, consumed, self._seconds)
        except (Elsewhere, NotWritten) as refused:
            what = topic or f"what is read ({', '.join(one.topic for one in consumed.offsets)}), or its group,"
            raise Fault(
                FaultKind.TRANSACTION_REFUSED,
                f"reactive_exactly_once is not possible: {what} cannot be in a transaction ({refused}). "
                "Either the principal has no right to it; or a cluster older than Kafka 3.0 has it, or has the "
                "transactional id, and the two are on different clusters. Grant the right, or set "
                "reactive_transactional_id to an id whose home is that cluster",
            ) from None

    async def close(self) -> None:
        if self._client is not None:
            self._client.interrupt()
        if self._working is not None:
            await asyncio.wait([self._working], timeout=self._seconds)
        await self._drop()
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        """Writes one transaction after the other, while settlements wait."""
        while self._waiting:
            together, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
            for one in together:
                one.has_begun = True
            problem = await self._tried(together)
            if problem is not None and len(together) > 1:
                for one in together:
                    _end(one, await self._tried([one]))
            else:
                for one in together:
                    _end(one, problem)

    async def _tried(self, together: list[_Waiting]) -> NotSettledError | None:
        try:
            with metrics.transaction_seconds.time():
                await self._transaction(together)
        except NotSettledError as problem:
            metrics.settling_failures.inc()
            self.problem = str(problem)
            return problem
        except Exception as error:
            log.exception("a transaction failed unexpectedly")
            await self._drop()
            return NotSettledError(f"unexpected failure: {error!r}")
        self.problem = ""
        return None

    async def _transaction(self, together: list[_Waiting]) -> None:
        session = self._session
        if session is None:
            raise NotSettledError("there is no session with Kafka")
        writes = Writes(write for one in together for write in self._dead_letters.records_of(one.settlement))
        offsets = {one.settlement.partition: one.next_offset for one in together}
        try:
            group = await session.group_metadata()
            consumed = GroupOffsets([TopicPartition(*place, offset) for place, offset in offsets.items()], group)
            await self._write(writes, consumed)
        except Fault as refused:
            raise NotSettledError(refused.description) from None
        except (NotWritten, Elsewhere) as aborted:
            raise NotSettledError(f"the transaction was aborted: {aborted}") from None
        except Lost as lost:
            await self._drop()
            log.warning("the reactive consumer's producer is replaced", reason=str(lost), fenced=lost.fenced)
            if lost.certain or not await self._was_committed(session, offsets):
                raise NotSettledError(f"the producer was lost: {lost}") from None

    async def _write(self, writes: Writes, consumed: GroupOffsets) -> None:
        """Writes all in one transaction. If a record is too large for Kafka, a smaller form is written, and the backend
        is not asked again."""
        while True:
            client = await self._opened()
            try:
                await self._run(partial(client.write, writes.entries, self._seconds, consumed=consumed))
                return
            except NotWritten as aborted:
                smaller = writes.smaller(aborted.outcomes)
                if smaller is None:
                    raise
                writes = smaller
                await self._drop()  # librdkafka's next transaction would fail: the sequence numbers have a gap

    async def _was_committed(self, session: Session, offsets: dict[Partition, int]) -> bool:
        """Whether a transaction with an unknown outcome was committed; a new producer must have ended it before."""
        until = time.monotonic() + self._seconds
        while True:
            try:
                await self._opened()
                found = {one.partition: one.offset for one in await session.committed(list(offsets))}
                return all(found.get(place, -1) >= offset for place, offset in offsets.items())
            except (Lost, Fault) as problem:
                await self._drop()
                if time.monotonic() > until:
                    raise NotSettledError(f"nobody can tell whether it was committed: {problem}") from None
                await asyncio.sleep(1)

    async def _opened(self) -> TransactionalClient:
        if self._client is None:
            client = TransactionalClient(self._properties())
            await self._run(client.open, self._seconds)
            self._client = client
        return self._client

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await asyncio.wait_for(self._run(client.close), 3 * CLOSE_SECONDS)

    async def _run(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args))


def _end(one: _Waiting, problem: NotSettledError | None) -> None:
    if one.done.done():
        return
    if problem is None:
        one.done.set_result(None)
    else:
        one.done.set_exception(problem)
