"""How outcomes of records look over HTTP, and which status they make together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from starlette.responses import Response

from services.sidecar.api.status import RETRY_AFTER_SECONDS
from services.sidecar.producing.serializing import Serialized
from services.sidecar.records import Delivered, DeliveryError, WriteOutcome

_ALL_FAILED: dict[DeliveryError, tuple[int, str]] = {
    DeliveryError.AUTHENTICATION: (401, "UNAUTHORIZED"),
    DeliveryError.AUTHORIZATION: (403, "FORBIDDEN"),
    DeliveryError.UNKNOWN_TOPIC: (404, "NOT_FOUND"),
    DeliveryError.UNKNOWN_PARTITION: (404, "NOT_FOUND"),
    DeliveryError.KAFKA: (500, "INTERNAL_SERVER_ERROR"),
    DeliveryError.RETRIABLE: (503, "SERVICE_UNAVAILABLE"),
}
"""Status when all records of a request failed for one reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Over all records of a request."""

    status: int
    word: str


def verdict(deliveries: Iterable[WriteOutcome]) -> Verdict:
    reasons: set[DeliveryError] = set()
    for one in deliveries:
        if isinstance(one, Delivered):
            return _FINE
        reasons.add(one.error)
    return Verdict(*_ALL_FAILED[reasons.pop()]) if len(reasons) == 1 else _FINE


_FINE = Verdict(200, "OK")


def produce_answer(deliveries: Sequence[WriteOutcome], serialized: Serialized) -> Response:
    """The answer of `POST /producers/{topic}`."""
    found = verdict(deliveries)
    return answer(produce_body(deliveries, serialized, found), found)


def produce_body(deliveries: Sequence[WriteOutcome], serialized: Serialized, found: Verdict) -> bytes:
    return orjson.dumps({**offsets(deliveries, serialized), "requestStatus": found.word})


def answer(body: bytes, found: Verdict, headers: Mapping[str, str] | None = None) -> Response:
    response = Response(body, found.status, headers, media_type="application/json")
    if found.status == 503:
        response.headers["Retry-After"] = RETRY_AFTER_SECONDS
    return response


def offsets(deliveries: Sequence[WriteOutcome], serialized: Serialized) -> dict[str, object]:
    """The answer for one topic: an outcome for each record, and the schemas that the records were written with."""
    shown: dict[str, object] = {"offsets": [outcome(one) for one in deliveries]}
    if serialized.key_schema_id is not None:
        shown["key_schema_id"] = serialized.key_schema_id
    if serialized.value_schema_id is not None:
        shown["value_schema_id"] = serialized.value_schema_id
    return shown


def outcome(delivery: WriteOutcome) -> dict[str, object]:
    if isinstance(delivery, Delivered):
        return {"partition": delivery.partition, "offset": delivery.offset}
    return {"errorCode": delivery.error.value, "error": delivery.text}
