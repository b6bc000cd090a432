"""Errors of the REST v2 face: `{"error_code", "message"}`, with the codes of the product whose clients call."""

from enum import Enum
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from services.sidecar.api.app import ErrorHandlers
from services.sidecar.api.status import json_response, on_hang_up, refusal
from services.sidecar.faults import Fault, FaultKind


class Dialect(Enum):
    """A product whose clients call. Products differ in codes of errors, and in the offset that a commit names."""

    CONFLUENT = "confluent"
    """Confluent's proxy and Karapace: codes have five digits, and a commit names the last processed record."""
    STRIMZI = "strimzi"
    """Strimzi's bridge: the code is the status, and a commit names the next record to be read."""


class Refusal(Exception):  # noqa: N818  # as Fault: an answer for the caller
    """A request that is not served, with the status and the code of Confluent's proxy."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text


_CODES = {
    FaultKind.CONSUMER_INSTANCE_NOT_FOUND: (404, 40403),
    FaultKind.CONSUMER_ALREADY_EXISTS: (409, 40902),
    FaultKind.ILLEGAL_CONSUMER_STATE: (409, 40903),
    FaultKind.CONSUMER_CONFIG_EXCEPTION: (422, 42204),
    FaultKind.INVALID_EMBEDDED_FORMAT: (422, 42204),
    FaultKind.CONSUMER_FORMAT_MISMATCH: (406, 40601),
    FaultKind.TOPIC_NOT_FOUND: (404, 40401),
    FaultKind.SERIALIZE_SCHEMA_EXCEPTION: (422, 42205),
    FaultKind.FAILED_TO_GET_SCHEMA: (408, 40801),
    FaultKind.VALIDATOR_SCHEMA: (422, 422),
    FaultKind.VALIDATOR_REQUEST_BODY_MISSING: (422, 422),
    FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION: (422, 422),
    FaultKind.FAILED_TO_COMMIT_OFFSETS: (500, 50002),
}
"""All other faults keep their status, which is their code too."""


def handlers(dialect: Dialect) -> ErrorHandlers:
    """The handlers of all errors of an application."""
    return {
        Fault: partial(_on_fault, dialect),
        Refusal: partial(_on_refusal, dialect),
        HTTPException: partial(_on_http_exception, dialect),
        ClientDisconnect: on_hang_up,
        Exception: partial(_on_surprise, dialect),
    }


def record_error(code: int, text: str, dialect: Dialect) -> dict[str, object]:
    """The outcome of a record that was not written."""
    if dialect is Dialect.STRIMZI:
        return {"error_code": code // 100, "message": text}
    return {"error_code": code, "error": text}


def _answer(dialect: Dialect, status: int, code: int, text: str) -> Response:
    shown = status if dialect is Dialect.STRIMZI else code
    response = json_response({"error_code": shown, "message": text}, status)
    response.headers["Content-Type"] = "application/vnd.kafka.v2+json"
    return response


async def _on_fault(dialect: Dialect, request: Request, error: Exception) -> Response:
    assert isinstance(error, Fault)
    ours = refusal(error)  # counted, and with the headers that tell a client how to go on
    status, code = _CODES.get(error.kind, (ours.status_code, ours.status_code))
    answer = _answer(dialect, status, code, error.description)
    for name in ("Connection", "Retry-After", "WWW-Authenticate"):
        if name in ours.headers:
            answer.headers[name] = ours.headers[name]
    return answer


async def _on_refusal(dialect: Dialect, request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _answer(dialect, error.status, error.code, error.text)


async def _on_http_exception(dialect: Dialect, request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(dialect, error.status_code, error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _on_surprise(dialect: Dialect, request: Request, error: Exception) -> Response:
    """The traceback is in the log; the caller gets no inside knowledge."""
    return _answer(dialect, 500, 500, "Unexpected failure; the sidecar's log has the reason")
