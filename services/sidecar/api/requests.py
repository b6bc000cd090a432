"""Reads a request: its body within the bound, and its query."""

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from services.sidecar.api.contract import operation_of
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import json_text

BIG_BODY_BYTES = 64 * 1024
"""Larger bodies are read and serialized on a thread, so that other requests go on meanwhile."""
P = ParamSpec("P")
T = TypeVar("T")
_MISMATCH = (
    "Either the Content-Type header application/json does not match the body, or the body was serialized incorrectly."
)


async def body_of(request: Request, max_bytes: int) -> bytes:
    """The body; Fault when it is over the bound, without reading the rest."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
    return b"".join(parts)


def _too_large(max_bytes: int) -> Fault:
    return Fault(
        FaultKind.REQUEST_BODY_TOO_LARGE,
        f"The body is larger than {max_bytes} bytes (max_request_bytes); send fewer records in one request",
    )


def parsed(request: Request, body: bytes) -> Any:
    """The body as JSON. Only `application/json` will do: a page in a browser cannot send us that unasked."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body:
        raise Fault(
            FaultKind.VALIDATOR_REQUEST_BODY_MISSING,
            f"Method {request.method.lower()} on path {request.url.path} requires a request body. None found.",
        )
    if content_type != "application/json" and not (
        content_type.startswith("application/") and content_type.endswith("+json")
    ):
        found = content_type or "none"
        raise Fault(FaultKind.CONTENT_TYPE_MISMATCH, f"Content-Type is {found}; send application/json. {_MISMATCH}")
    try:
        return json_text.loads(body)
    except json_text.JsonError as error:
        raise Fault(FaultKind.CONTENT_TYPE_MISMATCH, f"{_MISMATCH} {error}") from None


def is_big(body: bytes) -> bool:
    return len(body) > BIG_BODY_BYTES


async def read_aside(body: bytes, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `read` for the body; on a thread if the body is large."""
    return await asyncio.to_thread(read, *args, **kwargs) if is_big(body) else read(*args, **kwargs)


async def checked_body(request: Request, max_bytes: int) -> Any:
    """The body as the contract has it, in the plain way; None where there is none and the operation needs none."""
    operation = operation_of(request)
    body = await body_of(request, max_bytes)
    return operation.body(parsed(request, body)) if body or operation.body_required else None
