"""Errors as the contract shows them: one JSON object, the same for every endpoint."""

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from services.sidecar.faults import Fault, FaultKind

_HTTP_STATUS: dict[FaultKind, int] = {
    FaultKind.RUNTIME_EXCEPTION: 500,
    FaultKind.PATH_NOT_IMPLEMENTED: 404,
    FaultKind.SERVER_INFO_DISABLED: 404,
    FaultKind.DOWNSTREAM_ADMIN_FAILED: 502,
    FaultKind.CONSUMER_INSTANCE_NOT_FOUND: 404,
    FaultKind.TOO_MANY_CONSUMER_INSTANCES: 429,
    FaultKind.CONSUMER_INSTANCE_BUSY: 429,
    FaultKind.SIDECAR_SUPERSEDED: 503,
    FaultKind.CONSUMER_INSTANCES_NOT_RESTORED: 503,
    FaultKind.ILLEGAL_CONSUMER_STATE: 409,
}
"""All others are 400."""


def json_response(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def no_content() -> Response:
    return Response(status_code=204)


def status_response(fault: Fault) -> Response:
    status = _HTTP_STATUS.get(fault.kind, 400)
    shown: dict[str, object] = {
        "statusCode": status,
        "code": fault.kind.value,
        "message": fault.kind.name,
        "description": fault.description,
        "severity": "ERROR",
    }
    if fault.metadata is not None:
        shown["metadata"] = fault.metadata
    return json_response(shown, status)


async def on_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, Fault)
    return status_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """No route, or none for this method: the original answers both alike."""
    assert isinstance(error, HTTPException)
    if error.status_code not in (404, 405):
        return status_response(Fault(FaultKind.RUNTIME_EXCEPTION, error.detail))
    text = f"No handler defined for path '{request.url.path}' and method {request.method}"
    return status_response(Fault(FaultKind.PATH_NOT_IMPLEMENTED, text))


async def on_surprise(request: Request, error: Exception) -> Response:
    """The traceback is in the log; the caller gets no inside knowledge."""
    return status_response(Fault(FaultKind.RUNTIME_EXCEPTION, "Unexpected runtime exception"))
