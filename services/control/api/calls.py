"""Wraps every call: its caller and the caller's rights, its status, its duration, a line in the log, an audit event."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc_status import rpc_status

from mesh.exposition.histograms import Histogram
from mesh.routing import InvalidRuleError
from mesh.rpc import admin, errors
from mesh.rpc.admission import admitted
from mesh.rpc.method_access import PACKAGE, decides
from mesh.rpc.principals import Principal, principal_of
from mesh.rpc.token_callers import AUTHORIZATION, TokenCallers
from services.control.api.access_gate import AccessGate
from services.control.api.auditing import UNKNOWN, Introduction, audit_event
from services.control.api.bounds import LONGEST, check_bounds
from services.control.api.freeze_gate import FreezeGate
from services.control.api.required import check_required
from services.control.decisions.answers import ReplayedFailure, as_rpc_error, replayed, stored_response
from services.control.domain.errors import InvalidField, Refusal
from services.control.store.audit import AuditTrail
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import Caller
from services.control.store.journal import AlreadyAnswered
from services.control.store.log import StoredAnswer

CALL_TIMEOUT = 60.0
"""Seconds for a unary call: turn, checks, rollout and all; each part has a bound of its own, far below."""
LONGEST_ACTOR = 200
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")

ANSWER_MARGIN = 0.5
"""Seconds before its caller's deadline by which a call answers, so that the answer still arrives."""
REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
"""Codes of calls that their caller may not make: each one is on record, also a read."""
ACTOR, ON_BEHALF_OF, BREAK_GLASS = "x-mesh-actor", "x-mesh-on-behalf-of", "x-mesh-break-glass-bin"
"""Metadata of a call. The first one counts only where nobody proves who calls."""
GONE = "its caller went away before the answer; what had begun goes on, the history says what came of it"

LONGEST_ENDING = 2.0
"""Seconds that a call waits to hear whether its audit event is stored with its decision."""

M = TypeVar("M", bound=Message)

log = structlog.get_logger("audit")
call_seconds = Histogram("kafka_mesh_control_call_seconds", "How long gRPC calls took.", ["method", "code"])
_caller: ContextVar[Introduction] = ContextVar("caller", default=UNKNOWN)
_record: ContextVar[DecisionRecord | None] = ContextVar("record", default=None)
_answer_by: ContextVar[float] = ContextVar("answer_by", default=0.0)


class DecisionRecord:
    """The audit event of a call that does nothing but append: PostgreSQL stores it together with the decision."""

    def __init__(self, method: str, request: Message) -> None:
        self._method, self._request, self._who = method, request, _caller.get()
        self._began = time.monotonic()
        self._stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._given: admin.AuditEvent | None = None
        self._is_over = False

    def event_of(self, position: int) -> admin.AuditEvent | None:
        """The event, if the decision is at this position; None when the call has ended without the decision."""
        if self._is_over:
            return None
        self._given = self.event(admin.RuleChangeResponse(revision=position), grpc.StatusCode.OK, "")
        return self._given

    def event(self, response: Message | None, code: grpc.StatusCode, problem: str) -> admin.AuditEvent:
        """The event of the call, if the call ends now like this."""
        who = self._who
        return audit_event(self._method, who, self._request, response, code.name, problem, self.seconds)

    @property
    def seconds(self) -> float:
        """How long the call has taken so far."""
        return time.monotonic() - self._began

    def ended(self, *, stored: bool) -> None:
        """The transaction of the decision has ended."""
        if not self._stored.done():
            self._stored.set_result(stored)

    async def stored_event(self) -> admin.AuditEvent | None:
        """The event that is stored with a decision; None: no decision stores the event any more."""
        self._is_over = True
        if self._given is None:
            return None
        if not self._stored.done():
            await asyncio.wait([self._stored], timeout=LONGEST_ENDING)
        return self._given if self._stored.done() and self._stored.result() else None


class Approvals(Protocol):
    """The gate for changes that need a second person (`approval_gate.py`)."""

    async def made(self, method: str, behaviour: Callable[..., Awaitable[M]], request: Message, context: Any) -> M:
        """The answer of the call. Refusal if the call waits for a second person."""


def present_introduction() -> Introduction:
    """The caller of the present call."""
    return _caller.get()


def continues_as(who: Introduction) -> None:
    """The rest of the present call is made by this caller."""
    _caller.set(who)


def present_principal() -> Principal | None:
    """The principal that makes the present call; None if the caller has proved no name."""
    return _caller.get().principal


def present_record() -> DecisionRecord | None:
    """The record of the present call, for a decision that ends the call."""
    return _record.get()


def caller(request: Message, request_id: str = "", reason: str = "") -> Caller:
    """The caller of the present call; `request` is the message of that call."""
    if request_id:
        try:
            uuid.UUID(request_id)
        except ValueError:
            raise InvalidField(
                "request_id", f"{request_id!r} is not a UUID; leave it out, or make one per request"
            ) from None
    who = _caller.get()
    digest = _digest(request) if request_id else b""
    return Caller(who.actor, reason, who.trace_id, request_id, digest, who.on_behalf_of, who.proposal)


def _digest(request: Message) -> bytes:
    kind = request.DESCRIPTOR.full_name.encode()
    return hashlib.sha256(kind + request.SerializeToString(deterministic=True)).digest()


def time_left() -> float:
    """Seconds that the present call may still take."""
    return max(0.0, _answer_by.get() - time.monotonic())


async def once(kind: type[M], decision: Awaitable[M]) -> M:
    """The response of `decision`; for a request_id that was decided before, the answer to the first call."""
    try:
        return await decision
    except AlreadyAnswered as again:
        return replayed(kind, again.answer)


async def once_with_revision(
    kind: type[M], who: Caller, decide: Callable[[Callable[[int], StoredAnswer | None]], Awaitable[int]]
) -> M:
    """The response that holds the revision of a decision; `decide` gets the answer to store, given the revision."""

    def response(revision: int) -> M:
        return kind(revision=revision)

    async def decided() -> M:
        return response(await decide(lambda revision: stored_response(who, response(revision))))

    return await once(kind, decided())


class Calls(grpc.aio.ServerInterceptor):
    """Wraps every handler of mesh.v1; health and reflection go through untouched."""

    def __init__(
        self,
        trail: AuditTrail,
        access: AccessGate,
        freeze: FreezeGate,
        approvals: Approvals,
        tokens: TokenCallers | None = None,
    ) -> None:
        """`tokens`: None if no tokens count."""
        self._trail = trail
        self._tokens = tokens
        self._access = access
        self._freeze = freeze
        self._approvals = approvals

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None or not details.method.startswith(PACKAGE):
            return handler
        if handler.request_streaming and handler.response_streaming:
            return _with(handler, stream_stream=self._stream(details.method, handler.stream_stream))
        if handler.response_streaming:
            return _with(handler, unary_stream=self._stream(details.method, handler.unary_stream))
        return _with(handler, unary_unary=self._unary(details.method, handler.unary_unary))

    def _unary(self, method: str, behaviour: Callable[..., Awaitable[M]]) -> Callable[..., Awaitable[M]]:
        async def call(request: Message, context: Any) -> M:
            try:
                await self._introduced(method, request, context)
                return await self._made(method, behaviour, request, context)
            except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a status
                status = _status(method, error)
                await context.abort(status.code, status.details, status.trailing_metadata or ())
                raise AssertionError("abort raises") from None

        return call

    def _stream(
        self, method: str, behaviour: Callable[..., AsyncIterator[Message]]
    ) -> Callable[..., AsyncIterator[Message]]:
        async def call(request: Any, context: Any) -> AsyncIterator[Message]:
            is_known = False
            try:
                await self._introduced(method, request, context)
                is_known = True
                admissible = self._admitted(method, request)
                if isinstance(request, Message):
                    check_required(request)
                async for message in behaviour(admissible, context):
                    self._check_still(method, request)
                    yield message
            except Exception as error:  # noqa: BLE001  # as above
                status = _status(method, error)
                if is_known and status.code in REFUSALS:
                    await self._refused(method, request, status)
                await context.abort(status.code, status.details, status.trailing_metadata or ())

        return call

    def _admitted(self, method: str, request: Any) -> Any:
        """A request, or a stream of requests, as far as the caller may make them. RpcError if the caller may not."""
        principal = _caller.get().principal
        if principal is None or principal.is_member:
            return admitted(principal, method, request)
        self._access.admit(principal, method, request)
        return request

    def _check_still(self, method: str, request: Any) -> None:
        """RpcError if a grant of the caller was revoked, or its token has expired, since the stream began."""
        principal = _caller.get().principal
        if principal is not None and not principal.is_member:
            self._access.admit(principal, method, request)

    async def _introduced(self, method: str, request: Any, context: Any) -> None:
        """Makes the caller known. RpcError if the caller proves nothing, or speaks for another without a grant."""
        try:
            metadata = dict(context.invocation_metadata() or ())
            given = str(metadata.get(AUTHORIZATION, ""))
            _introduce(context, metadata)
            by_token = await self._tokens.principal(given) if self._tokens and given else None
            who = _introduced(by_token or principal_of(context), metadata)
            if who.principal is not None and who.on_behalf_of:
                self._access.admit_on_behalf_of(who.principal, who.on_behalf_of)
        except Exception as error:
            await self._refused(method, request, _status(method, error))
            raise

    async def _refused(self, method: str, request: Any, status: Any) -> None:
        record = DecisionRecord(method, request if isinstance(request, Message) else Empty())
        await self._noted(method, record, None, status.code, status.details)

    async def make(self, method: str, behaviour: Callable[..., Awaitable[M]], request: Message, who: Introduction) -> M:
        """Makes a call on behalf of `who`, with the record that every call has. Raises the error that refuses it."""
        _caller.set(who)
        _answer_by.set(time.monotonic() + CALL_TIMEOUT - ANSWER_MARGIN)
        return await self._made(method, behaviour, request, None)

    async def _made(self, method: str, behaviour: Callable[..., Awaitable[M]], request: Message, context: Any) -> M:
        record = DecisionRecord(method, request)
        _record.set(record)
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                self._admitted(method, request)
                check_bounds(request)
                check_required(request)
                await self._freeze.admit(method, request)
                response = await self._approvals.made(method, behaviour, request, context)
        except Exception as error:
            status = _status(method, error)
            await self._noted(method, record, None, status.code, status.details)
            raise
        except asyncio.CancelledError:
            await self._noted(method, record, None, grpc.StatusCode.CANCELLED, GONE)
            raise
        await self._noted(method, record, response, grpc.StatusCode.OK, "")
        return response

    async def _noted(
        self, method: str, record: DecisionRecord, response: Message | None, code: grpc.StatusCode, problem: str
    ) -> None:
        """Records the call before the caller gets the answer."""
        call_seconds.labels(method, code.name).observe(record.seconds)
        command = decides(method) or code in REFUSALS
        if not command and code is grpc.StatusCode.OK:
            return
        stored = await record.stored_event() if command else None
        ended_well = code is grpc.StatusCode.OK
        event = stored if stored is not None and ended_well else record.event(response, code, problem)
        log.info(
            "call", method=method, actor=event.actor, trace_id=event.trace_id, resource=event.resource,
            code=event.code, problem=problem, milliseconds=event.milliseconds,
        )  # fmt: skip
        if stored is not None:
            await self._trail.were_kept(1)
        elif command:
            await self._trail.keep(event)


def _with(handler: Any, **behaviour: Any) -> Any:
    return handler._replace(**behaviour)


def _introduce(context: Any, metadata: Mapping[str, Any]) -> None:
    """Notes all but the caller's name, for the record of a call whose caller proves nothing."""
    trace = TRACEPARENT.fullmatch(str(metadata.get("traceparent", "")))
    trace_id = trace[1] if trace else secrets.token_hex(16)
    given = context.time_remaining()
    _answer_by.set(time.monotonic() + min(CALL_TIMEOUT, CALL_TIMEOUT if given is None else given) - ANSWER_MARGIN)
    peer = context.peer() or ""
    _caller.set(Introduction(peer, peer, trace_id))


def _introduced(principal: Principal | None, metadata: Mapping[str, Any]) -> Introduction:
    unknown = _caller.get()
    actor = principal.actor if principal else str(metadata.get(ACTOR) or unknown.peer)[:LONGEST_ACTOR]
    other = str(metadata.get(ON_BEHALF_OF, ""))[:LONGEST_ACTOR]
    given = metadata.get(BREAK_GLASS, b"")
    glass = given.decode(errors="replace") if isinstance(given, bytes) else ""
    emergency = glass.strip()[: LONGEST["reason"]]
    who = replace(unknown, actor=actor, principal=principal, on_behalf_of=other, break_glass=emergency)
    _caller.set(who)
    return who


def _status(method: str, error: Exception) -> Any:
    match error:
        case errors.RpcError():
            return error.status()
        case Refusal():
            return as_rpc_error(error).status()
        case ReplayedFailure():
            return rpc_status.to_status(error.status)
        case InvalidRuleError():
            return errors.bad_request(f"rule.{error.field_name}", str(error)).status()
        case StoreUnavailableError():
            text = f"{error}; what is decided stays in force, changes have to wait until it answers again"
            return errors.unavailable("DATABASE_UNAVAILABLE", text).status()
        case TimeoutError():
            text = f"the call took longer than control allows ({CALL_TIMEOUT:.0f} s): see the status, then retry"
            return errors.RpcError(grpc.StatusCode.DEADLINE_EXCEEDED, text).status()
        case _:
            log.exception("a call failed by a fault of control", method=method)
            return errors.RpcError(grpc.StatusCode.INTERNAL, "control failed at this call; its log says how").status()
