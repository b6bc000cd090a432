"""The console's way to records: who may go it, how many at a time, and in which threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from mesh.settings import host_port, is_loopback
from services.console import metrics
from services.console.outcomes import CONSOLE, CallError, Ending
from services.console.records.decoding import Schemas
from services.console.records.kafka import Client, give_back
from services.console.records.reading import read
from services.console.records.tailing import Tail, Turn
from services.console.records.wanted import Bounds, Found, Wanted
from services.console.records.writing import New, Place, Sent, write
from services.console.settings import ConsoleSettings, ReadWithoutLogin

T = TypeVar("T")
MEBIBYTE = 1024 * 1024
NO_GATEWAY = "This console has no address of a gateway (GATEWAY_ADDRESS), so it shows no records."
LOG_IN = "Records need a log-in: the gateway knows a viewer by the own token."
LOG_IN_HERE = "Records need a log-in, because others than those on this machine reach this console."
NO_WRITING = (
    "The gateway of this console asks for no log-in (GATEWAY_PROTOCOL), so it can't know you, and the console writes "
    "nothing there. Write by a client of your own."
)


class Records:
    """The way to records, for all viewers."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.reads = self.tails = 0
        self.sent = Sent()
        self.schemas = Schemas(settings.schema_registry)
        self._threads: ThreadPoolExecutor | None = None

    def of(self, token: str) -> ViewersRecords:
        return ViewersRecords(self, token)

    async def run(self, work: Callable[[], T]) -> T:
        """In a thread of the pool, which has one for each look and each tail."""
        if self._threads is None:
            most = self.settings.max_reads + self.settings.max_tails
            self._threads = ThreadPoolExecutor(most, thread_name_prefix="records")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class ViewersRecords:
    """Records as one viewer sees them."""

    records: Records
    token: str = field(repr=False)
    """Empty: the viewer has not logged in."""

    @property
    def settings(self) -> ConsoleSettings:
        return self.records.settings

    @property
    def by_token(self) -> bool:
        """Whether the gateway decides by the token of the viewer. If not, all viewers are the same to it."""
        return self.settings.gateway_protocol.authenticates

    @property
    def why_not(self) -> CallError | None:
        """Why this viewer can see no records, before any gateway is asked."""
        if self.settings.gateway_address is None:
            return CallError(Ending.ABSENT, "NO_GATEWAY", NO_GATEWAY)
        if not self.token and (self.by_token or not self._is_for_this_machine):
            return CallError(Ending.LOGIN_NEEDED, "UNAUTHENTICATED", LOG_IN if self.by_token else LOG_IN_HERE)
        return None

    @property
    def why_no_writing(self) -> str:
        return "" if self.by_token else NO_WRITING

    async def read(self, wanted: Wanted) -> Found:
        """CallError."""
        bounds = Bounds(
            self.settings.records_scanned, self.settings.records_mebibytes * MEBIBYTE, self.settings.records_timeout_s
        )
        found = await self._look(lambda client: read(client, wanted, bounds, self.records.schemas))
        metrics.records_read.inc(found.scanned)
        return found

    async def write(self, record: New, request_id: str) -> Place:
        """Where the record is. One request id writes one record. CallError."""
        if not self.by_token:
            raise CallError(Ending.REFUSED, "NO_WRITING", NO_WRITING, by=CONSOLE)
        if (place := self.records.sent.begin(request_id)) is not None:
            return place
        try:
            place = await self._look(lambda client: write(client, record, self.settings.records_timeout_s))
        except CallError as failure:
            self.records.sent.finish(request_id, failure)
            raise
        self.records.sent.finish(request_id, place)
        return place

    async def tail(self, wanted: Wanted, *, goes_on: Callable[[], bool]) -> AsyncGenerator[Turn, None]:
        """Turns, for as long as `goes_on`; an empty one as it begins. CallError."""
        if self.records.tails >= self.settings.max_tails:
            metrics.records_refused.inc()
            text = f"{self.settings.max_tails} viewers follow records now, and no more may (MAX_TAILS)."
            raise CallError(Ending.BUSY, "TOO_MANY", text, by=CONSOLE)
        self._check()
        self.records.tails += 1
        metrics.tails.set(self.records.tails)
        tail: Tail | None = None
        try:
            tail = Tail(
                Client(self.settings, self.token), wanted, self.settings.tail_records_per_s, self.records.schemas
            )
            begun = tail
            await self.records.run(lambda: begun.begin(self.settings.records_timeout_s))
            yield Turn([])
            while goes_on():
                yield await self.records.run(begun.turn)
        finally:
            self.records.tails -= 1
            metrics.tails.set(self.records.tails)
            if tail is not None:
                await asyncio.shield(self.records.run(tail.end))

    def _check(self) -> None:
        if (failure := self.why_not) is not None:
            raise failure

    async def _look(self, work: Callable[[Client], T]) -> T:
        self._check()
        if self.records.reads >= self.settings.max_reads:
            metrics.records_refused.inc()
            text = f"{self.settings.max_reads} reads of records are under way, and no more may be (MAX_READS)."
            raise CallError(Ending.BUSY, "TOO_MANY", text, by=CONSOLE)
        self.records.reads += 1
        metrics.reads.set(self.records.reads)

        def carried_out() -> T:
            try:
                return work(Client(self.settings, self.token))
            finally:
                give_back()

        look = asyncio.ensure_future(self.records.run(carried_out))
        look.add_done_callback(self._ended)  # a look goes on in its thread, also if the viewer has left
        return await asyncio.shield(look)

    def _ended(self, _: object) -> None:
        self.records.reads -= 1
        metrics.reads.set(self.records.reads)

    @property
    def _is_for_this_machine(self) -> bool:
        own = is_loopback(host_port(self.settings.listen)[0])
        return own and self.settings.read_without_login is ReadWithoutLogin.LOOPBACK
