"""Errors as the contract shows them: one JSON object, the same for every endpoint."""

import orjson
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.telemetry import metrics

log = structlog.get_logger(__name__)

_HTTP_STATUS: dict[FaultKind, int] = {
    FaultKind.INVALID_AUTH_TOKEN: 401,
    FaultKind.AUTH_TOKEN_EXPIRED: 401,
    FaultKind.MISSING_AUTH_TOKEN: 401,
    FaultKind.AUTH_TOKEN_SCOPE_MISMATCH: 403,
    FaultKind.SCHEMA_REGISTRY_UNAVAILABLE: 503,
    FaultKind.TOKEN_ISSUER_UNAVAILABLE: 503,
    FaultKind.REQUEST_TOO_SLOW: 408,
    FaultKind.REQUEST_TOOK_TOO_LONG: 503,
    FaultKind.TOO_MANY_OPEN_REQUESTS: 429,
    FaultKind.TOO_MANY_CONNECTIONS: 503,
    FaultKind.REQUEST_HEADERS_TOO_LARGE: 431,
    FaultKind.REQUEST_OF_ANOTHER_ORIGIN: 403,
    FaultKind.RUNTIME_EXCEPTION: 500,
    FaultKind.PATH_NOT_IMPLEMENTED: 404,
    FaultKind.SERVER_INFO_DISABLED: 404,
    FaultKind.DOWNSTREAM_ADMIN_FAILED: 502,
    FaultKind.CONSUMER_INSTANCE_NOT_FOUND: 404,
    FaultKind.TOO_MANY_CONSUMER_INSTANCES: 429,
    FaultKind.CONSUMER_INSTANCE_BUSY: 429,
    FaultKind.SIDECAR_SUPERSEDED: 503,
    FaultKind.ILLEGAL_CONSUMER_STATE: 409,
    FaultKind.IDEMPOTENCY_KEY_REUSED: 422,
    FaultKind.TRANSACTION_REFUSED: 409,
    FaultKind.TRANSACTIONS_BUSY: 503,
    FaultKind.TRANSACTION_NOT_DONE: 503,
    FaultKind.TOO_MANY_PRODUCE_STREAMS: 503,
    FaultKind.TOPIC_NOT_FOUND: 404,
    FaultKind.KAFKA_UNAVAILABLE: 503,
    FaultKind.STREAM_NOT_FOUND: 404,
    FaultKind.STREAM_STATE_NOT_FOUND: 404,
    FaultKind.STREAM_NOT_READY: 503,
    FaultKind.STREAM_NOT_REPLACED: 409,
    FaultKind.REPLAY_NOT_FOUND: 404,
    FaultKind.TOO_MANY_REPLAYS: 429,
    FaultKind.AUDIT_FULL: 503,
    FaultKind.KSQLDB_UNAVAILABLE: 503,
    FaultKind.TOPIC_EXISTS: 409,
}
"""All others are 400."""
_REFUSED = {
    FaultKind.MISSING_AUTH_TOKEN: "no token",
    FaultKind.INVALID_AUTH_TOKEN: "invalid token",
    FaultKind.AUTH_TOKEN_EXPIRED: "expired token",
    FaultKind.AUTH_TOKEN_SCOPE_MISMATCH: "scope",
    FaultKind.TOKEN_ISSUER_UNAVAILABLE: "issuer away",
    FaultKind.REQUEST_TOO_SLOW: "slow request",
    FaultKind.REQUEST_TOOK_TOO_LONG: "took too long",
    FaultKind.TOO_MANY_OPEN_REQUESTS: "too many open requests",
    FaultKind.TOO_MANY_CONNECTIONS: "too many connections",
    FaultKind.REQUEST_HEADERS_TOO_LARGE: "large headers",
    FaultKind.REQUEST_OF_ANOTHER_ORIGIN: "another origin",
    FaultKind.REQUEST_BODY_TOO_LARGE: "large body",
}
"""Labels of `refused_calls`."""
RETRY_AFTER_SECONDS = "1"
"""Seconds; a bound that is reached has room again within moments."""


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
    response = json_response(shown, status)
    response.headers.update(_headers(fault, status))
    return response


def refusal(fault: Fault) -> Response:
    """As `status_response`; counted and logged where a call was not let in."""
    if reason := _REFUSED.get(fault.kind):
        metrics.refused_calls.labels(reason).inc()
        log.debug("refused", code=fault.kind.value, reason=fault.description)
    return status_response(fault)


def _headers(fault: Fault, status: int) -> dict[str, str]:
    """The headers that tell a client, without knowledge of this API's codes, how to go on."""
    match status:
        case 408 | 431:
            return {"Connection": "close"}  # the next bytes on this connection are the rest of this request
        case 503 if fault.kind is FaultKind.TOO_MANY_CONNECTIONS:
            return {"Connection": "close", "Retry-After": RETRY_AFTER_SECONDS}
        case 401 if fault.kind is FaultKind.MISSING_AUTH_TOKEN:
            return {"WWW-Authenticate": "Bearer"}
        case 401:
            return {"WWW-Authenticate": 'Bearer error="invalid_token"'}
        case 403:
            return {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
        case 429 | 503:
            return {"Retry-After": RETRY_AFTER_SECONDS}
        case _:
            return {}


async def on_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, Fault)
    return refusal(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """No route, or none for this method: the original answers both alike."""
    assert isinstance(error, HTTPException)
    if error.status_code not in (404, 405):
        return status_response(Fault(FaultKind.RUNTIME_EXCEPTION, error.detail))
    text = f"No handler defined for path '{request.url.path}' and method {request.method}"
    return status_response(Fault(FaultKind.PATH_NOT_IMPLEMENTED, text))


async def on_hang_up(request: Request, error: Exception) -> Response:
    """An answer that nobody reads: the caller left before its body was complete.

    The metrics need the status; proxies use the same status.
    """
    return Response(status_code=499)


async def on_surprise(request: Request, error: Exception) -> Response:
    """The traceback is in the log; the caller gets no inside knowledge."""
    return status_response(Fault(FaultKind.RUNTIME_EXCEPTION, "Unexpected runtime exception"))
