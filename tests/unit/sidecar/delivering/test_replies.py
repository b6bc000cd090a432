"""Records that a backend wants written."""

from typing import Any

import pytest

from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.delivering.answers import AnswerError
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format
from services.sidecar.producing.serializing import Serializer
from tests.fixtures.deliveries import deliverable

WRITER = ReplyWriter(Serializer(Format.STRING, Format.JSON))


async def test_a_reply_is_written_as_a_produce_request_is() -> None:
    record = {"key": "alice", "value": {"total": 3}, "partition": 1, "headers": {"kind": "total"}, "correlationId": "c"}
    (reply,) = await WRITER.written([{"topic": "totals", "records": [record]}], "the answer")
    assert reply.topic == "totals"
    assert (reply.record.key, reply.record.value, reply.record.partition) == (b"alice", b'{"total":3}', 1)
    assert reply.record.headers == [("X-Correlation-Id", b"c"), ("kind", b"total")]


async def test_formats_are_those_of_the_reply() -> None:
    produce = [{"topic": "totals", "valueFormat": "binary", "key_format": 1, "records": [{"key": 1, "value": "/w=="}]}]
    (reply,) = await WRITER.written(produce, "the answer")
    assert (reply.record.key, reply.record.value) == (b"1", b"\xff")


async def test_headers_may_be_a_list_of_bytes() -> None:
    headers = [{"key": "a", "value": "/w=="}, {"key": "a", "value": None}]
    (reply,) = await WRITER.written([{"topic": "t", "records": [{"value": 1, "headers": headers}]}], "the answer")
    assert reply.record.headers[1:] == [("a", b"\xff"), ("a", None)]


async def test_a_reply_has_the_ids_of_the_record_that_it_replies_to() -> None:
    to = deliverable(7, headers=[("X-Correlation-Id", b"5Cl"), ("X-Traceability-Id", b"t-1")]).raw
    (reply,) = await WRITER.written([{"topic": "t", "records": [{"value": 1}]}], "result 0", to)
    assert dict(reply.record.headers) == {"X-Correlation-Id": b"5Cl", "X-Traceability-Id": b"t-1"}


@pytest.mark.parametrize(
    ("produce", "complaint"),
    [
        (1, "result 3: produce/0: Input should be"),
        ({"records": []}, "result 3: produce/0/topic: Field required"),
        ({"topic": "a b", "records": []}, "result 3: produce/0/topic: 'a b' is not the name of a topic"),
        ({"topic": "t"}, "result 3: produce/0/records: Field required"),
        ({"topic": "t", "records": [{"valeu": 1}]}, "result 3: produce/0/records/0/valeu: Extra inputs"),
        ({"topic": "t", "records": [{"partition": -1}]}, "result 3: produce/0/records/0/partition: Input should be"),
        ({"topic": "t", "records": [{"headers": {"a": 1}}]}, "result 3: produce/0/records/0/headers: Value error"),
        ({"topic": "t", "records": [{"headers": [{"key": "a", "value": "!"}]}]}, "result 3: produce/0/records/0/he"),
        ({"topic": "t", "valueFormat": "xml", "records": []}, "result 3: produce/0/valueFormat: Value error"),
        (
            {"topic": "t", "valueFormat": "binary", "records": [{"value": 1}]},
            "result 3: produce/0: Unexpected exception",
        ),
        ({"topic": "t", "valueFormat": "avro", "records": [{"value": 1}]}, "result 3: produce/0: value: "),
    ],
)
async def test_what_cannot_be_written_is_a_bad_answer_and_named(produce: object, complaint: str) -> None:
    with pytest.raises(AnswerError) as refused:
        await WRITER.written([produce], "result 3")
    assert str(refused.value).startswith(complaint)


async def test_a_registry_that_is_away_is_no_fault_of_the_answer() -> None:
    class Away:
        async def serialize(self, *_: Any) -> Any:
            raise Fault(FaultKind.SCHEMA_REGISTRY_UNAVAILABLE, "it does not answer")

    with pytest.raises(RegistryUnavailableError, match="it does not answer"):
        await ReplyWriter(Away()).written([{"topic": "t", "records": [{"value": 1}]}], "the answer")
