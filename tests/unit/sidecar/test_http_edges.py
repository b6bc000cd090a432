"""What the HTTP side does before Kafka is asked: bodies, content types, ids, paths, and the statuses of outcomes."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

from services.sidecar.api.app import build_app
from services.sidecar.api.produce_requests import HeaderPolicy
from services.sidecar.api.producers import ProducerEndpoints
from services.sidecar.api.requests import body_of
from services.sidecar.api.streaming_produce import ProduceStreams, StreamLimits
from services.sidecar.formats import Format
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.serializing import Serializer
from services.sidecar.producing.transactions import TransactionLimits, Transactions
from services.sidecar.records import Delivered, DeliveryError, Failed, Outgoing, WriteOutcome

MAX_BODY = 1000
RECORD = {"records": [{"key": "a", "value": "b"}]}


class ToldProducer(RecordProducer):
    """Answers what the test says, without Kafka."""

    def __init__(self, outcomes: list[WriteOutcome]) -> None:
        self.outcomes = outcomes
        self.sent: list[Outgoing] = []

    async def send(self, topic: str, records: list[Outgoing]) -> list[WriteOutcome]:
        self.sent += records
        return self.outcomes


def no_client(transactional_id: str) -> dict[str, Any]:
    raise AssertionError("nobody asked for a transaction")


@pytest.fixture
def producer() -> ToldProducer:
    return ToldProducer([Delivered(0, 7)])


@pytest.fixture
async def http(producer: ToldProducer) -> AsyncIterator[httpx.AsyncClient]:
    headers = HeaderPolicy()
    serializer = Serializer(Format.STRING, Format.STRING)
    endpoints = ProducerEndpoints(
        producer,
        serializer,
        Transactions(no_client, {}, ["unused"], TransactionLimits(1, 1.0, 1, 1, 1)),
        ProduceStreams(producer, serializer, headers, StreamLimits(1, MAX_BODY, 1.0)),
        max_request_bytes=MAX_BODY,
        headers=headers,
    )
    transport = httpx.ASGITransport(build_app(endpoints.routes()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
        yield client


def code(answer: httpx.Response) -> tuple[int, str]:
    body: dict[str, Any] = answer.json()
    assert body["statusCode"] == answer.status_code
    assert body["severity"] == "ERROR"
    return answer.status_code, body["code"]


async def test_the_answer_has_the_recorded_members(http: httpx.AsyncClient) -> None:
    answer = await http.post("/producers/apples", json=RECORD)
    assert (answer.status_code, answer.json()) == (
        200,
        {"offsets": [{"partition": 0, "offset": 7}], "requestStatus": "OK"},
    )


async def test_no_body(http: httpx.AsyncClient) -> None:
    answer = await http.post("/producers/apples")
    assert code(answer) == (400, "ERR11014")


async def test_not_json(http: httpx.AsyncClient) -> None:
    answer = await http.post("/producers/apples", content=b"{oops", headers={"Content-Type": "application/json"})
    assert code(answer) == (400, "ERR10015")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_other_content_types(http: httpx.AsyncClient, content_type: str) -> None:
    answer = await http.post("/producers/apples", content=b'{"records":[]}', headers={"Content-Type": content_type})
    assert code(answer) == (400, "ERR10015")


async def test_a_body_over_the_bound(http: httpx.AsyncClient, producer: ToldProducer) -> None:
    answer = await http.post("/producers/apples", json={"records": [{"value": "x" * MAX_BODY}]})
    assert code(answer) == (400, "ERR12901")
    assert not producer.sent


async def test_a_body_over_the_bound_that_did_not_say_its_length(http: httpx.AsyncClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * (MAX_BODY // 2)

    answer = await http.post("/producers/apples", content=parts(), headers={"Content-Type": "application/json"})
    assert code(answer) == (400, "ERR12901")


async def test_a_caller_that_hangs_up_in_its_body_is_no_error_of_ours() -> None:
    async def read(request: Request) -> Response:
        await body_of(request, MAX_BODY)
        raise AssertionError("half a body was taken for a whole one")

    coming: list[Message] = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]
    answered: list[Message] = []

    async def receive() -> Message:
        return coming.pop()

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    await build_app([Route("/", read, methods=["POST"])])(scope, receive, send)  # raises nothing
    assert answered[0]["status"] == 499


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nope"), ("GET", "/producers/apples"), ("PATCH", "/producers/apples")]
)
async def test_unknown_paths_and_methods(http: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await http.request(method, path)
    assert code(answer) == (404, "ERR10048")
    assert answer.json()["description"] == f"No handler defined for path '{path}' and method {method}"


async def test_ids_of_the_exchange_come_back(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/producers/apples", json=RECORD, headers={"X-Traceability-Id": "t", "X-Correlation-Id": "c"}
    )
    assert (answer.headers["X-Traceability-Id"], answer.headers["X-Correlation-Id"]) == ("t", "c")


async def test_a_correlation_id_is_made_if_there_is_none(http: httpx.AsyncClient) -> None:
    answer = await http.get("/nope")
    assert len(answer.headers["X-Correlation-Id"]) == 22
    assert "X-Traceability-Id" not in answer.headers


async def test_the_callers_token_does_not_get_into_records(http: httpx.AsyncClient, producer: ToldProducer) -> None:
    await http.post("/producers/apples", json=RECORD, headers={"Authorization": "Bearer secret"})
    assert [name for name, _ in producer.sent[0].headers] == ["X-Correlation-Id"]


LOST = Failed(DeliveryError.RETRIABLE, "down")


@pytest.mark.parametrize(
    ("outcomes", "status", "word"),
    [
        ([], 200, "OK"),
        ([Delivered(0, 1), LOST], 200, "OK"),
        ([LOST, Failed(DeliveryError.KAFKA, "other")], 200, "OK"),
        ([LOST, LOST], 503, "SERVICE_UNAVAILABLE"),
        ([Failed(DeliveryError.AUTHENTICATION, "who")], 401, "UNAUTHORIZED"),
        ([Failed(DeliveryError.AUTHORIZATION, "no")], 403, "FORBIDDEN"),
        ([Failed(DeliveryError.KAFKA, "odd")], 500, "INTERNAL_SERVER_ERROR"),
        ([Failed(DeliveryError.UNKNOWN_TOPIC, "where")], 404, "NOT_FOUND"),
    ],
)
async def test_all_failed_for_one_reason_is_a_failed_request(
    http: httpx.AsyncClient, producer: ToldProducer, outcomes: list[WriteOutcome], status: int, word: str
) -> None:
    producer.outcomes = outcomes
    answer = await http.post("/producers/apples", json=RECORD)
    assert (answer.status_code, answer.json()["requestStatus"]) == (status, word)
    assert len(answer.json()["offsets"]) == len(outcomes)


async def test_a_surprise_is_an_error_without_inside_knowledge(
    http: httpx.AsyncClient, producer: ToldProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(topic: str, records: list[Outgoing]) -> list[WriteOutcome]:
        raise LookupError("inside knowledge")

    monkeypatch.setattr(producer, "send", broken)
    answer = await http.post("/producers/apples", json=RECORD)
    assert code(answer) == (500, "ERR10010")
    assert "inside" not in answer.text
