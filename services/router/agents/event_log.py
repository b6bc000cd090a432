"""The Faust application: one agent that reads the log. All that knows Faust is here.

Theory of operation
1. The application runs embedded and in Faust's client mode: its consumer has no group. There are no committed offsets,
   so who starts it says from which record on; there is no session to wait for after a crash, no rebalance in
   which a record could be lost, and nothing is left behind on the cluster. This holds for a topic of one partition,
   which is what the log is.
2. Faust's client mode starts no agents and does start a reply consumer; `_Boot` says otherwise. It starts agents before
   the conductor, which subscribes once, to what the agents want by then.
3. Nothing is on disk and nothing is produced: no tables, no changelogs, no leader topic, no web server.
4. What goes wrong inside an agent Faust would log and go on from, one record further. Here it ends the reading:
   `EventLog.run` raises it, and who called decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import faust
import structlog
from aiokafka.errors import KafkaError
from faust.app.base import BootStrategy
from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

from mesh.connection_security import PasswordLogin
from mesh.event_log.pieces import Headers
from services.router.agents.home import HomeAccess, HomeToken, reason_of
from services.router.agents.log_topic import EventLogError

Receive = Callable[[bytes, int, Headers], None]
"""Called with the value, the offset and the headers of each record, in order."""

CONNECT_TIMEOUT = 10.0
"""Seconds to reach the cluster and learn the end of the log."""
STOP_TIMEOUT = 2.0
"""Seconds that Faust may take to stop; a stop by SIGTERM promises 3."""
REQUEST_TIMEOUT = 10.0
"""Seconds without an answer after which aiokafka opens a new connection."""
NEVER = 10 * 365 * 86_400.0
"""Seconds; for Faust's complaints about streams that are quiet: this log may be quiet for months."""
RECORDS_PER_TURN = 16
"""Records of a long log that are folded in a row, before data planes get their turn on the loop."""
log = structlog.get_logger(__name__)
faust_log = logging.getLogger("faust")
"""Faust would log in the name of this module what its own classes do."""


class _Boot(BootStrategy):
    """What starts, in which order: consumer, agents, conductor, fetcher."""

    def client_only(self) -> Iterable[Any]:
        app: Any = self.app
        return [app.consumer, app.agents, app.topics, app._fetcher]


class _ConsumerThread(AIOKafkaConsumerThread):
    logger = faust_log

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Begins where the reading is to begin. A consumer that has subscribed could only be told so when it has read
        records already."""
        await self.call_thread(self._begin)

    async def _begin(self) -> None:
        app: Any = self.app
        consumer = self._ensure_consumer()
        consumer.assign([app.partition])
        consumer.seek(app.partition, app.first_offset)

    async def on_thread_stop(self) -> None:
        """While the cluster is away, aiokafka lets the cancellation of its own fetch escape from its stop.

        It would end this thread before it has said that it ends, and mode would wait for that word for ever.
        """
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            await self._ensure_consumer()._client.close()

    def last_answer(self, partition: TP) -> float | None:
        """When the cluster last answered a fetch, in seconds since 1970."""
        milliseconds = self._ensure_consumer().last_poll_timestamp(partition)
        return None if milliseconds is None else milliseconds / 1000


class _Consumer(Consumer):
    logger = faust_log

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(Transport):
    Consumer = _Consumer


class _App(faust.App):
    BootStrategy = _Boot
    logger = faust_log
    partition: TP
    first_offset: int

    async def on_first_start(self) -> None:
        """Faust would create its data directory; there is nothing to put into it."""


class EventLog:
    """One reading of the log: start it, run it, stop it, each once (`run` as often as one likes)."""

    def __init__(self, app_id: str, home: HomeAccess, topic: str, receive: Receive, first_offset: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._partition = TP(topic, 0)
        self._home = home
        self._failure: asyncio.Future[None] = loop.create_future()
        self._app: Any = _App(
            app_id,
            broker=[f"kafka://{address}" for address in home.bootstrap],
            broker_credentials=_credentials(home),
            store="memory://",
            web_enabled=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
            consumer_auto_offset_reset="earliest",
            broker_client_id=app_id,
            broker_request_timeout=REQUEST_TIMEOUT,
            broker_session_timeout=REQUEST_TIMEOUT,
            stream_processing_timeout=NEVER,
            broker_commit_livelock_soft_timeout=NEVER,
            loop=loop,
        )
        self._app.partition, self._app.first_offset = self._partition, first_offset
        self._app.transport = _Transport(self._app.transport.url, self._app)
        records = self._app.topic(topic, value_type=bytes, value_serializer="raw", acks=False)
        self._app.agent(records, name=app_id)(_agent(receive, self._failure))

    async def start(self) -> int:
        """Begins to read; the offset that the log ended at. EventLogError when the cluster can't be reached."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._app.start_client()
                ends = await self._app.consumer.highwaters(self._partition)
        except (KafkaError, TimeoutError, OSError) as error:
            raise EventLogError(f"home cluster {self._home}: {reason_of(error)}") from error
        return int(ends[self._partition])

    async def run(self, seconds: float) -> None:
        """Reads on for so long; raises what ends the reading before."""
        crash = asyncio.ensure_future(self._app.wait_until_stopped())
        try:
            done, _ = await asyncio.wait({crash, self._failure}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            if done:
                raise EventLogError(f"Faust stopped by itself: {self._app.crash_reason!r}")
        finally:
            crash.cancel()

    async def stop(self) -> None:
        """Ends the reading, within STOP_TIMEOUT; what does not end by then is left behind, which the log says."""
        if self._failure.done() and not self._failure.cancelled():
            self._failure.exception()  # was raised by `run`, or came after its end
        self._failure.cancel()
        stopping = asyncio.create_task(self._app.stop(), name="stop Faust")
        await asyncio.wait({stopping}, timeout=STOP_TIMEOUT)
        if stopping.done():
            stopping.result()
            return
        log.error("Faust does not stop; going on without", seconds=STOP_TIMEOUT)
        # it is not awaited: cancelled while it waits for one of its parts, mode goes on to wait for the next one
        stopping.cancel()

    def end_offset(self) -> int:
        """Where the log ends, as the last fetch said; 0 before there was one."""
        return int(self._app.consumer.highwater(self._partition) or 0)

    def last_answer(self) -> float | None:
        """When the cluster last answered, in seconds since 1970; it does so twice a second while nothing happens."""
        answered: float | None = self._app.consumer._thread.last_answer(self._partition)
        return answered


def _credentials(home: HomeAccess) -> Credentials | None:
    match home.login:
        case PasswordLogin(mechanism, username, password):
            return SASLCredentials(
                username=username, password=password, ssl_context=home.tls, mechanism=mechanism.value
            )
        case HomeToken():
            return OAuthCredentials(oauth_cb=home.login, ssl_context=home.tls)
    return None if home.tls is None else SSLCredentials(home.tls)


def _agent(receive: Receive, failure: asyncio.Future[None]) -> Callable[[Any], Any]:
    async def follow_log(stream: Any) -> None:
        async for event in stream.events():
            try:
                receive(event.value, event.message.offset, event.message.headers or ())
            except Exception as error:
                if not failure.done():
                    failure.set_exception(error)
                raise
            if event.message.offset % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)

    return follow_log
