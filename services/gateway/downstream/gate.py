"""Keeps a client out until it has logged in, and again when its session has expired.

Theory of operation
1. Until the log-in has succeeded, the gate takes each frame that comes. ApiVersions alone is answered as usual. Frames
   that come while a token is checked wait, in their order.
2. Before the log-in frames are small, the time is bounded, and so are the tokens.
3. A failed log-in is answered after `FAILED_DELAY_S`, as on a broker, and then the connection ends.
4. A session with an end (KIP-368) keeps its gate. SaslHandshake begins the next log-in, at most once in `RENEWAL_S`.
   Any other request after the end of the session closes the connection. A session without an end needs no gate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Final, Protocol

import structlog

from services.gateway import metrics
from services.gateway.authentication.conversation import Conversation, Reply, SaslPolicy, Stage
from services.gateway.authentication.mechanisms import Proved
from services.gateway.authentication.principal import CERTIFICATE, NOBODY
from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.slots import Slot
from services.gateway.quotas.crowds import Crowds
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Answer, NoAnswer
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import SIZE_BYTES, RequestHeader
from services.gateway.wire.primitives import INT32, Buffer, WireError
from services.gateway.wire.scanner.walks import headers
from services.gateway.wire.schema import Struct

FIRST_FRAMES_BYTES: Final = 32 * 1024
"""The longest frame before the log-in; a bearer token may have 8 KiB."""
MOST_WAITING: Final = 16
"""Frames that wait while a token is checked. Clients wait for the answer."""
MOST_WAITING_BYTES: Final = 1 << 20
LOGIN_S: Final = 30.0
"""The time for a log-in, from the connection or from the SaslHandshake that renews it."""
FAILED_DELAY_S: Final = 0.1
"""`connection.failed.authentication.delay.ms` of a broker by default."""
RENEWAL_S: Final = 1.0
"""The least time between two renewals, as on brokers."""

log = structlog.get_logger(__name__)


class Client(Protocol):
    """The connection."""

    session: Session

    @property
    def is_open(self) -> bool: ...

    def queued(self, header: RequestHeader) -> Slot:
        """A slot for the answer to this request, behind those of earlier requests."""

    def slot_answered(self, slot: Slot, answer: Answer) -> None: ...

    def send(self, *pieces: Buffer) -> None: ...

    def bound_frames(self, least: int, most: int) -> None:
        """The bytes of the frames that come from here on."""

    def admitted(self, *, for_good: bool) -> None:
        """The client may send requests now; `for_good`: the session has no end."""

    def frame_received(self, frame: memoryview, owned: bool) -> None: ...

    def drain(self, reason: str) -> None: ...

    def close(self, reason: str) -> None: ...

    def who(self) -> dict[str, str | None]: ...


def gate_for(client: Client, entrance: Entrance, transport: asyncio.BaseTransport, crowds: Crowds) -> Gate | None:
    """The gate of a client that has to log in first. None: the client's certificate shows its principal.

    If no mapping rule matches the certificate, the connection ends. So it does if it is one too many.
    """
    session = client.session
    if _is_too_many(client, "address", crowds.came(session.number, session.address)):
        return None
    if entrance.is_over:  # the listener has changed during the handshake
        client.close("its listener has changed")
        return None
    if entrance.has_revoked(transport):  # the list has come during the handshake
        revoke(client, "its certificate is revoked")
        return None
    if entrance.sasl is not None:
        client.bound_frames(0, FIRST_FRAMES_BYTES)
        return Gate(client, entrance, entrance.sasl, crowds)
    shown = entrance.shown(transport)
    if shown is not None:
        session.prove(shown)
        if shown is not NOBODY:
            _is_too_many(client, "principal", crowds.proved(session.number, session.principal))
        return None
    metrics.failed_authentications.labels(entrance.listener, CERTIFICATE).inc()
    log.warning("closing a connection: no mapping rule matches the certificate", **client.who())
    client.drain("no mapping rule matches the certificate")
    return None


def revoke(client: Client, why: str) -> None:
    """Ends the connection at once: the client's proof, or all that it may do, is gone."""
    metrics.cut_connections.labels("revoked").inc()
    log.info("closing a connection: its client is revoked", why=why, **client.who())
    client.close(why)


def _is_too_many(client: Client, whose: str, excess: str | None) -> bool:
    """Ends the connection for an excess of connections, behind the answers that are due."""
    if excess is not None:
        metrics.cut_connections.labels(whose).inc()
        log.warning("closing a connection: too many of one client", reason=excess, **client.who())
        client.drain(excess)
    return excess is not None


class Gate:
    """See above."""

    __slots__ = (
        "_began",
        "_client",
        "_conversation",
        "_crowds",
        "_entrance",
        "_expires",
        "_loop",
        "_policy",
        "_proved",
        "_task",
        "_timer",
        "_waiting",
    )

    def __init__(self, client: Client, entrance: Entrance, policy: SaslPolicy, crowds: Crowds) -> None:
        self._client = client
        self._crowds = crowds
        self._entrance = entrance
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self._conversation: Conversation | None = None
        """The log-in that goes on."""
        self._proved: Proved | None = None
        self._expires = inf
        """When the session ends, by the clock of the event loop."""
        self._began = -inf
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[bytes] = deque()
        self._begin()

    def follow(self, entrance: Entrance) -> None:
        """The listener has another policy, by which the client could have logged in just so."""
        self._entrance = entrance
        self._policy = entrance.sasl or self._policy

    @property
    def is_shut(self) -> bool:
        """Whether the gate takes the next frame."""
        return self._conversation is not None or self._loop.time() >= self._expires

    def takes(self, frame: memoryview) -> bool:
        """Whether the frame is part of a log-in, or of no use because there was none."""
        if self._task is not None:
            self._wait(frame)
            return True
        conversation = self._conversation
        if conversation is not None and conversation.stage is Stage.BARE_TOKENS:
            self._run(conversation, None, bytes(frame[SIZE_BYTES:]))
            return True
        try:
            header = headers.parse_request_header(frame, SIZE_BYTES, len(frame))
        except WireError as error:
            if conversation is None:
                raise
            self._failed(conversation, f"a request of the log-in that can't be read: {error}")
            return True
        if conversation is None:
            if header.api_key == ApiKey.SASL_HANDSHAKE and self._may_renew():
                conversation = self._begin()
            elif self._loop.time() < self._expires:
                return False
            else:
                metrics.expired_connections_killed.labels(self._entrance.listener).inc()
                log.info("closing a connection: its session has expired", **self._client.who())
                self._client.close("the session has expired")
                return True
        if header.api_key == ApiKey.API_VERSIONS:
            refused = conversation.greeted()
            if refused is None:
                return False
            self._failed(conversation, refused)
            return True
        if header.client_id is not None:
            self._client.session.client_id = header.client_id
        self._run(conversation, header, bytes(frame))
        return True

    def end(self) -> None:
        """The connection is gone."""
        self._stop_timer()
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _may_renew(self) -> bool:
        return self._expires != inf and self._loop.time() - self._began >= RENEWAL_S

    def _begin(self) -> Conversation:
        self._began = self._loop.time()
        self._conversation = conversation = Conversation(self._policy, self._proved)
        self._stop_timer()
        self._timer = self._loop.call_later(LOGIN_S, self._too_late)
        return conversation

    def _wait(self, frame: memoryview) -> None:
        self._waiting.append(bytes(frame))
        if len(self._waiting) > MOST_WAITING or sum(map(len, self._waiting)) > MOST_WAITING_BYTES:
            self._client.close("a client that does not wait for the answer to its log-in")

    def _run(self, conversation: Conversation, header: RequestHeader | None, data: bytes) -> None:
        slot = None if header is None else self._client.queued(header)
        task = self._task = self._loop.create_task(self._step(conversation, slot, data), name="log-in")
        task.add_done_callback(self._stepped)

    async def _step(self, conversation: Conversation, slot: Slot | None, data: bytes) -> None:
        reply = await (conversation.token(data) if slot is None else conversation.requested(slot.header, data))
        if reply.refused:
            self._count_failure(conversation, reply.refused)
        if reply.failure is not None:
            self._count_failure(conversation, reply.failure)
            await asyncio.sleep(FAILED_DELAY_S)
        if reply.proved is not None:
            self._admit(conversation, reply.proved)
        self._answer(slot, reply)
        if reply.failure is not None:
            self._client.drain(reply.failure)

    def _stepped(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled() or not self._client.is_open:
            return
        error = task.exception()
        if error is not None:  # a fault of ours must not leave a client half inside
            log.error("a log-in failed by a fault of the gateway", exc_info=error, **self._client.who())
            self._client.close("internal error, see the log line before")
            return
        waiting, self._waiting = self._waiting, deque()
        for frame in waiting:  # the first of them may begin a task again: then the others wait again
            if self._client.is_open:
                self._client.frame_received(memoryview(bytearray(frame)), True)

    def _answer(self, slot: Slot | None, reply: Reply) -> None:
        answer = reply.answer
        if isinstance(answer, bytes):
            self._client.send(INT32.pack(len(answer)) + answer)
        elif slot is not None:
            self._client.slot_answered(slot, answer if isinstance(answer, Struct) else NoAnswer())

    def _admit(self, conversation: Conversation, proved: Proved) -> None:
        self._stop_timer()
        renews, self._conversation, self._proved = conversation.renews, None, proved
        lifetime_s = conversation.lifetime_s(proved)
        self._expires = self._loop.time() + lifetime_s
        self._client.session.prove(proved.principal)
        self._client.session.token = proved.bearer
        counted = metrics.successful_reauthentications if renews else metrics.successful_authentications
        counted.labels(self._entrance.listener, conversation.mechanism).inc()
        self._client.admitted(for_good=lifetime_s == inf)
        session = self._client.session
        _is_too_many(self._client, "principal", self._crowds.proved(session.number, session.principal))

    def _failed(self, conversation: Conversation, reason: str) -> None:
        self._count_failure(conversation, reason)
        self._client.drain(reason)

    def _count_failure(self, conversation: Conversation, reason: str) -> None:
        if conversation.is_counted:
            return
        conversation.is_counted = True
        counted = metrics.failed_reauthentications if conversation.renews else metrics.failed_authentications
        counted.labels(self._entrance.listener, conversation.mechanism).inc()
        log.warning(
            "closing a connection: the client could not log in",
            reason=reason,
            listener=self._entrance.listener,
            mechanism=conversation.mechanism,
            **self._client.who(),
        )

    def _too_late(self) -> None:
        self._timer = None
        if self._conversation is not None:
            metrics.cut_connections.labels("login").inc()
            self._failed(self._conversation, f"no log-in within {LOGIN_S:g} s")
            self._client.close("no log-in in time")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
