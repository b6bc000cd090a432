"""Around every call: who asks, what it comes to, how long it took, and one audit line."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import Message
from grpc_status import rpc_status
from prometheus_client import Histogram

from mesh.routing import InvalidRuleError
from mesh.rpc import errors
from services.control.decisions.answers import ReplayedFailure, as_rpc_error, replayed
from services.control.domain.errors import InvalidField, Refusal
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import AlreadyAnswered, Caller

CALL_TIMEOUT = 60.0
"""Seconds for a unary call: turn, checks, rollout and all; each part has a bound of its own, far below."""
LONGEST_ACTOR = 200
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
QUIET = ("/Get", "/List", "/Explain", "/Watch", "/Test", "/Beat", "/Report")
"""Calls that decide nothing are not in the audit log, unless they fail."""

M = TypeVar("M", bound=Message)

log = structlog.get_logger("audit")
call_seconds = Histogram("control_call_seconds", "gRPC calls.", ["method", "code"])
_caller: ContextVar[tuple[str, str]] = ContextVar("caller", default=("unknown", ""))


def caller(request: Message, request_id: str = "", reason: str = "") -> Caller:
    """Who makes the present call; `request` is what it asks for."""
    if request_id:
        try:
            uuid.UUID(request_id)
        except ValueError:
            raise InvalidField(
                "request_id", f"{request_id!r} is not a UUID; leave it out, or make one per request"
            ) from None
    actor, trace_id = _caller.get()
    kind = request.DESCRIPTOR.full_name.encode()
    digest = hashlib.sha256(kind + request.SerializeToString(deterministic=True)).digest()
    return Caller(actor, reason, trace_id, request_id, digest)


async def once(kind: type[M], decision: Awaitable[M]) -> M:
    """The response of `decision`; for a request_id that was decided before, what the first call got."""
    try:
        return await decision
    except AlreadyAnswered as again:
        return replayed(kind, again.answer)


class Calls(grpc.aio.ServerInterceptor):
    """Wraps every handler of mesh.v1; health and reflection go through untouched."""

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None or not details.method.startswith("/mesh.v1."):
            return handler
        if handler.request_streaming and handler.response_streaming:
            return _with(handler, stream_stream=_stream(details.method, handler.stream_stream))
        if handler.response_streaming:
            return _with(handler, unary_stream=_stream(details.method, handler.unary_stream))
        return _with(handler, unary_unary=_unary(details.method, handler.unary_unary))


def _with(handler: Any, **behaviour: Any) -> Any:
    return handler._replace(**behaviour)


def _unary(method: str, behaviour: Callable[..., Awaitable[Message]]) -> Callable[..., Awaitable[Message]]:
    async def call(request: Message, context: Any) -> Message:
        _introduce(context)
        started = time.monotonic()
        code, problem = grpc.StatusCode.OK, ""
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await behaviour(request, context)
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a status and the log a line
            status = _status(method, error)
            code, problem = status.code, status.details
            await context.abort(status.code, status.details, status.trailing_metadata or ())
            raise AssertionError("abort raises") from None
        finally:
            _audit(method, request, code, problem, time.monotonic() - started)

    return call


def _stream(method: str, behaviour: Callable[..., AsyncIterator[Message]]) -> Callable[..., AsyncIterator[Message]]:
    async def call(request: Any, context: Any) -> AsyncIterator[Message]:
        _introduce(context)
        try:
            async for message in behaviour(request, context):
                yield message
        except Exception as error:  # noqa: BLE001  # as above
            status = _status(method, error)
            await context.abort(status.code, status.details, status.trailing_metadata or ())

    return call


def _introduce(context: Any) -> None:
    metadata = dict(context.invocation_metadata() or ())
    actor = str(metadata.get("x-mesh-actor") or context.peer())[:LONGEST_ACTOR]
    trace = TRACEPARENT.fullmatch(str(metadata.get("traceparent", "")))
    _caller.set((actor, trace[1] if trace else ""))


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
            log.exception("call failed", method=method)
            return errors.RpcError(grpc.StatusCode.INTERNAL, "control failed at this call; its log says how").status()


def _audit(method: str, request: Message, code: grpc.StatusCode, problem: str, seconds: float) -> None:
    call_seconds.labels(method, code.name).observe(seconds)
    verb = method[method.rindex("/") :]
    if verb.startswith(QUIET) and code is grpc.StatusCode.OK:
        return
    actor, trace_id = _caller.get()
    resource = getattr(request, "name", "")  # never the request itself: it may hold what must not be written down
    log.info(
        "call", method=method, actor=actor, trace_id=trace_id, resource=resource, code=code.name, problem=problem,
        milliseconds=round(seconds * 1000, 1),
    )  # fmt: skip
