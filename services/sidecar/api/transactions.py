"""`POST /transactions`: records for several topics, all of them or none."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of
from services.sidecar.api.contract import CONTRACT, operation_of, parameters
from services.sidecar.api.produce_answers import offsets, verdict
from services.sidecar.api.produce_requests import HeaderPolicy, produce_request
from services.sidecar.api.producers import transaction_answer
from services.sidecar.api.requests import body_of, is_big, parsed, read_aside
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.idempotency import IdempotencyKey
from services.sidecar.producing.produce_request import ProduceRequest
from services.sidecar.producing.producer import NotAccepted, RecordProducer
from services.sidecar.producing.serializing import Serialized, Serializer
from services.sidecar.producing.transaction_writer import Answered, Work
from services.sidecar.producing.transactional_client import TopicRecords
from services.sidecar.producing.transactions import Transactions
from services.sidecar.records import Failed, WriteOutcome


class TransactionEndpoints:
    """Writes to several topics at once."""

    def __init__(
        self,
        producer: RecordProducer,
        serializer: Serializer,
        transactions: Transactions,
        *,
        max_request_bytes: int,
        headers: HeaderPolicy,
    ) -> None:
        self._producer = producer
        self._serializer = serializer
        self._transactions = transactions
        self._max_request_bytes = max_request_bytes
        self._headers = headers

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.produce_in_transaction)

    async def produce_in_transaction(self, request: Request) -> Response:
        body = await body_of(request, self._max_request_bytes)
        asked = await read_aside(body, _asked, request, body)
        topics = [one.topic for one in asked]
        headers = HeaderWriter(self._headers.of(request))
        may_register = caller_of(request).check_registers
        parts = [
            await self._serializer.serialize(one, headers, on_thread=is_big(body), may_register=may_register)
            for one in asked
        ]

        def render(outcomes: Sequence[Sequence[WriteOutcome]]) -> bytes:
            return _body(topics, parts, outcomes)

        if refused := await self._refused(topics):
            everywhere: list[list[WriteOutcome]] = [[refused] * len(part.records) for part in parts]
            return transaction_answer(Answered(everywhere, render(everywhere)))
        key = parameters(request).get("Idempotency-Key")
        work = Work(
            [TopicRecords(topic, part.records) for topic, part in zip(topics, parts, strict=True)],
            render,
            None if key is None else IdempotencyKey.of(key, request.url.path.encode(), body),
        )
        return transaction_answer(await self._transactions.write(work))

    async def _refused(self, topics: Sequence[str]) -> Failed | None:
        """Why nothing is written: one of the topics is not there."""
        for topic in dict.fromkeys(topics):
            try:
                await self._producer.check(topic)
            except NotAccepted as refused:
                return refused.why
        return None


def _asked(request: Request, body: bytes) -> list[ProduceRequest]:
    """One produce request for each topic. Fault if the caller may not write to one of the topics."""
    members: list[Mapping[str, Any]] = operation_of(request).body(parsed(request, body))["topics"]
    topics = [str(one["topic"]) for one in members]
    caller_of(request).check_writes(topics)
    return [produce_request(topic, one) for topic, one in zip(topics, members, strict=True)]


def _body(topics: Sequence[str], parts: Sequence[Serialized], outcomes: Sequence[Sequence[WriteOutcome]]) -> bytes:
    shown = [
        {"topic": topic, **offsets(deliveries, part)}
        for topic, part, deliveries in zip(topics, parts, outcomes, strict=True)
    ]
    found = verdict(one for deliveries in outcomes for one in deliveries)
    return orjson.dumps({"topics": shown, "requestStatus": found.word})
