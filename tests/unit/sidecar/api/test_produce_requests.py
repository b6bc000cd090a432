"""What a produce request may look like, and the records it becomes."""

import asyncio

import pytest

from services.sidecar.api.contract import CONTRACT
from services.sidecar.api.produce_requests import produce_request
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format
from services.sidecar.producing.headers import HeaderWriter, RequestHeaders
from services.sidecar.producing.serializing import Serializer
from services.sidecar.records import Outgoing

PRODUCE = CONTRACT.operations["produce"]
STRINGS = Serializer(Format.STRING, Format.STRING)


def records_of(body: object) -> list[Outgoing]:
    asked = produce_request("apples", PRODUCE.body(body))
    return asyncio.run(STRINGS.serialize(asked, HeaderWriter(RequestHeaders()))).records


def test_headers_as_a_list_keep_duplicates_bytes_and_nulls() -> None:
    given = [{"key": "h", "value": "AP8="}, {"key": "h", "value": ""}, {"key": "h"}]
    record = one_record(correlationId="c", headers=given)
    assert record.headers == [("X-Correlation-Id", b"c"), ("h", b"\x00\xff"), ("h", b""), ("h", None)]


def one_record(**members: object) -> Outgoing:
    (record,) = records_of({"records": [members]})
    return record


def fault_of(body: object) -> Fault:
    with pytest.raises(Fault) as raised:
        records_of(body)
    return raised.value


def test_names_with_underscores_are_accepted() -> None:
    body = {
        "key_format": "binary",
        "value_format": 1,
        "records": [{"key": "YQ==", "value": [1], "correlation_id": "c"}],
    }
    (record,) = records_of(body)
    assert (record.key, record.value, record.headers) == (b"a", b"[1]", [("X-Correlation-Id", b"c")])


@pytest.mark.parametrize("format_", ["BINARY", "JSON", "STRING"])
def test_null_and_absent_are_kafka_nulls_in_every_format(format_: str) -> None:
    (record,) = records_of({"keyFormat": format_, "valueFormat": format_, "records": [{"value": None}]})
    assert (record.key, record.value) == (None, None)


def test_one_bad_record_refuses_the_batch_and_is_named() -> None:
    fault = fault_of({"records": [{"value": "good"}, {"value": 5}]})
    assert fault.kind is FaultKind.SERIALIZE_SCHEMA_EXCEPTION
    assert "index in batch : 1" in fault.description
    assert "value: integer found, string expected" in fault.description


@pytest.mark.parametrize(("given_timestamp", "expected"), [(1700000000000, 1700000000000), (0, 0), (None, 0)])
def test_a_timestamp_that_is_not_given_is_now(given_timestamp: int | None, expected: int) -> None:
    assert one_record(timestamp=given_timestamp).timestamp == expected


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"valueFormat": "AVRO"}, FaultKind.FAILED_TO_GET_SCHEMA),
        ({"keyFormat": 4}, FaultKind.FAILED_TO_GET_SCHEMA),
        ({"valueSchemaId": 1}, FaultKind.FAILED_TO_GET_SCHEMA),
        ({"valueSchemaId": 1, "valueFormat": "STRING"}, FaultKind.FAILED_TO_GET_SCHEMA),
        ({"valueSchemaId": 1, "valueSchemaVersion": 2}, FaultKind.VERSION_WITH_SCHEMA_ID),
        ({"value_schema_id": 1, "valueSchema": "x"}, FaultKind.SCHEMA_WITH_SCHEMA_ID),
        ({"keySchemaVersion": 1, "keySchema": "x"}, FaultKind.SCHEMA_WITH_SCHEMA_VERSION),
        ({"keySchema": "x"}, FaultKind.RAW_SCHEMA_WITHOUT_FORMAT),
        ({"keySchema": "x", "keyFormat": "STRING"}, FaultKind.RAW_SCHEMA_WITHOUT_FORMAT),
        ({"valueSchemaSubject": "fruit"}, FaultKind.FAILED_TO_GET_SCHEMA),
        ({"valueSchemaSubject": "fruit", "valueFormat": "JSON"}, FaultKind.FORMAT_WITH_SUBJECT),
        ({"valueSchemaMessage": "Apple"}, FaultKind.VALIDATOR_SCHEMA),
    ],
)
def test_schemas_are_refused_by_what_is_wrong_with_them(members: dict[str, object], kind: FaultKind) -> None:
    assert fault_of({**members, "records": []}).kind is kind
