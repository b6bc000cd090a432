"""`POST /producers/{topic}`: a batch of records, answered when Kafka has them; or before; or only once."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of
from services.sidecar.api.cloud_events import carries_events, event_records, said_beside_body
from services.sidecar.api.contract import CONTRACT, operation_of, parameters
from services.sidecar.api.produce_answers import Verdict, answer, produce_answer, produce_body, verdict
from services.sidecar.api.produce_requests import HeaderPolicy, produce_request
from services.sidecar.api.requests import body_of, is_big, parsed, read_aside
from services.sidecar.api.status import json_response
from services.sidecar.api.streaming_produce import ProduceStreams, sends_lines
from services.sidecar.faults import invalid
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.idempotency import IdempotencyKey
from services.sidecar.producing.late_failures import tell_failures
from services.sidecar.producing.produce_request import ProduceRequest
from services.sidecar.producing.producer import NotAccepted, RecordProducer
from services.sidecar.producing.serializing import Serialized, Serializer
from services.sidecar.producing.transaction_writer import Answered, Work
from services.sidecar.producing.transactional_client import TopicRecords
from services.sidecar.producing.transactions import Transactions
from services.sidecar.records import WriteOutcome

REPLAYED = {"Idempotency-Replayed": "true"}
"""Header of an answer that was given before, to the first request with the same Idempotency-Key."""


class ProducerEndpoints:
    """Takes batches of records."""

    def __init__(
        self,
        producer: RecordProducer,
        serializer: Serializer,
        transactions: Transactions,
        streams: ProduceStreams,
        *,
        max_request_bytes: int,
        headers: HeaderPolicy,
    ) -> None:
        self._producer = producer
        self._serializer = serializer
        self._transactions = transactions
        self._streams = streams
        self._max_request_bytes = max_request_bytes
        self._headers = headers

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.produce)

    async def produce(self, request: Request) -> Response:
        if sends_lines(request):
            return await self._streams.open(request)
        body = await body_of(request, self._max_request_bytes)
        serialized = await self._serialized(request, body)
        topic = request.path_params["topic"]
        given = parameters(request)
        key, later = given.get("Idempotency-Key"), given.get("async", False)
        if key is not None and later:
            raise invalid(
                "/async", "there is no answer yet that could be kept for Idempotency-Key; send one of the two"
            )
        if key is not None:
            parts = (request.url.path.encode(), said_beside_body(request), body)
            return await self._written_once(topic, serialized, IdempotencyKey.of(key, *parts))
        if later:
            return await self._taken(topic, serialized)
        return produce_answer(await self._producer.send(topic, serialized.records), serialized)

    async def _serialized(self, request: Request, body: bytes) -> Serialized:
        headers = HeaderWriter(self._headers.of(request))
        if carries_events(request.headers):
            return Serialized(await read_aside(body, event_records, request, body, headers))
        asked = await read_aside(body, _asked, request, body)
        may_register = caller_of(request).check_registers
        return await self._serializer.serialize(asked, headers, on_thread=is_big(body), may_register=may_register)

    async def _written_once(self, topic: str, serialized: Serialized, key: IdempotencyKey) -> Response:
        """Writes all records or none: a kept answer then always names records that are in Kafka."""

        def render(outcomes: Sequence[Sequence[WriteOutcome]]) -> bytes:
            return produce_body(outcomes[0], serialized, verdict(outcomes[0]))

        try:
            await self._producer.check(topic)
        except NotAccepted as refused:
            return produce_answer([refused.why] * len(serialized.records), serialized)
        work = Work([TopicRecords(topic, serialized.records)], render, key)
        return transaction_answer(await self._transactions.write(work))

    async def _taken(self, topic: str, serialized: Serialized) -> Response:
        """Answered when the records are on their way."""
        try:
            acknowledged = await self._producer.accept(topic, serialized.records)
        except NotAccepted as refused:
            return produce_answer([refused.why] * len(serialized.records), serialized)
        tell_failures(topic, acknowledged)
        return json_response({"requestStatus": "ACCEPTED", "records": len(serialized.records)}, 202)


def transaction_answer(answered: Answered) -> Response:
    """The answer to a request that was written in a transaction. Only a committed answer is ever replayed."""
    if answered.replayed:
        return answer(answered.body, Verdict(200, "OK"), REPLAYED)
    return answer(answered.body, verdict(one for outcomes in answered.outcomes for one in outcomes))


def _asked(request: Request, body: bytes) -> ProduceRequest:
    members = operation_of(request).body(parsed(request, body))
    return produce_request(request.path_params["topic"], members)
