"""`POST /producers/{topic}`."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.contract import CONTRACT, operation_of
from services.sidecar.api.produce_requests import HeaderPolicy, produce_request
from services.sidecar.api.requests import body_of, parsed
from services.sidecar.api.status import json_response
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.records import Delivered, Delivery, DeliveryError, Failed, ProduceRequest
from services.sidecar.producing.serializing import Serialized, Serializer

BIG_BODY_BYTES = 64 * 1024
"""Larger bodies are read and serialized on a thread, so that other requests go on meanwhile."""

_ALL_FAILED: dict[DeliveryError, tuple[int, str]] = {
    DeliveryError.AUTHENTICATION: (401, "UNAUTHORIZED"),
    DeliveryError.AUTHORIZATION: (403, "FORBIDDEN"),
    DeliveryError.UNKNOWN_TOPIC: (404, "NOT_FOUND"),
    DeliveryError.UNKNOWN_PARTITION: (404, "NOT_FOUND"),
    DeliveryError.KAFKA: (500, "INTERNAL_SERVER_ERROR"),
    DeliveryError.RETRIABLE: (503, "SERVICE_UNAVAILABLE"),
}
"""Status when all records of a request failed for one reason."""


class ProducerEndpoints:
    """Takes batches of records."""

    def __init__(
        self, producer: RecordProducer, serializer: Serializer, *, max_request_bytes: int, headers: HeaderPolicy
    ) -> None:
        self._producer = producer
        self._serializer = serializer
        self._max_request_bytes = max_request_bytes
        self._headers = headers

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.produce)

    async def produce(self, request: Request) -> Response:
        body = await body_of(request, self._max_request_bytes)
        is_big = len(body) > BIG_BODY_BYTES
        asked = await asyncio.to_thread(_asked, request, body) if is_big else _asked(request, body)
        headers = HeaderWriter(self._headers.of(request.headers))
        serialized = await self._serializer.serialize(asked, headers, on_thread=is_big)
        return _answer(await self._producer.send(asked.topic, serialized.records), serialized)


def _asked(request: Request, body: bytes) -> ProduceRequest:
    return produce_request(request.path_params["topic"], operation_of(request).body(parsed(request, body)))


def _answer(deliveries: list[Delivery], serialized: Serialized) -> Response:
    status, word = 200, "OK"
    if deliveries and all(isinstance(one, Failed) for one in deliveries):
        reasons = {one.error for one in deliveries if isinstance(one, Failed)}
        if len(reasons) == 1:
            status, word = _ALL_FAILED[reasons.pop()]
    ids = {"key_schema_id": serialized.key_schema_id, "value_schema_id": serialized.value_schema_id}
    shown = {
        "offsets": [_shown(one) for one in deliveries],
        **{name: schema_id for name, schema_id in ids.items() if schema_id is not None},
        "requestStatus": word,
    }
    return json_response(shown, status)


def _shown(delivery: Delivery) -> dict[str, object]:
    if isinstance(delivery, Delivered):
        return {"partition": delivery.partition, "offset": delivery.offset}
    return {"errorCode": delivery.error.value, "error": delivery.text}
