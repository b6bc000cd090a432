"""What the contract lets through, in which form it comes in, and how what does not fit is refused."""

from typing import Any

import pytest

from services.sidecar.api.contract import CONTRACT
from services.sidecar.faults import Fault, FaultKind

PRODUCE = CONTRACT.operations["produce"]
CREATE = CONTRACT.operations["create_instance"]
COMMITTED = CONTRACT.operations["get_committed_offsets"]


def refused(operation: str, body: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        CONTRACT.operations[operation].body(body)
    assert raised.value.kind is FaultKind.VALIDATOR_SCHEMA
    return raised.value


@pytest.mark.parametrize(
    ("body", "pointer_and_text"),
    [
        ([], ": array found, object expected"),
        ({}, ": required property 'records' not found"),
        ({"records": {"key": "a"}}, "/records: object found, array expected"),
        ({"records": ["a"]}, "/records/0: string found, object expected"),
        ({"records": [], "extra": 1}, "/extra: unknown member (known: keyFormat, keySchema, "),
        ({"records": [{}, {"odd": 1}]}, "/records/1/odd: unknown member (known: key, value, partition, "),
        ({"records": [], "a/b~c": 1}, "/a~1b~0c: unknown member"),
        ({"records": [{"partition": -1}]}, "/records/0/partition: must have a minimum value of 0"),
        ({"records": [{"partition": 2**31}]}, "/records/0/partition: must have a maximum value of 2147483647"),
        ({"records": [{"partition": 2**70}]}, "/records/0/partition: must have a maximum value of 2147483647"),
        ({"records": [{"partition": "1"}]}, "/records/0/partition: string found, integer expected"),
        ({"records": [{"partition": True}]}, "/records/0/partition: boolean found, integer expected"),
        ({"records": [{"partition": 5.5}]}, "/records/0/partition: number found, integer expected"),
        ({"records": [{"headers": {"h": 1}}]}, "/records/0/headers/h: integer found, string expected"),
        ({"records": [{"headers": {"a\0b": ""}}]}, "/records/0/headers: must not contain the character NUL"),
        ({"records": [{"headers": [{"value": ""}]}]}, "/records/0/headers/0: required property 'key' not found"),
        ({"records": [{"headers": [{"key": "h", "value": "?"}]}]}, "/records/0/headers/0/value: not base64"),
        (
            {"records": [{"headers": "h"}]},
            "/records/0/headers: an object of strings, or a list of {key, value}, expected",
        ),
        ({"records": [{"correlationId": 5}]}, "/records/0/correlationId: integer found, string expected"),
        (
            {"records": [], "valueFormat": "XML"},
            '/valueFormat: does not have a value in the enumeration ["BINARY", "JS',
        ),
        ({"records": [], "keyFormat": 6}, "/keyFormat: does not have a value in the enumeration"),
        ({"records": [], "keyFormat": True}, "/keyFormat: does not have a value in the enumeration"),
        ({"records": [], "valueSchemaSubject": "a\0"}, "/valueSchemaSubject: must not contain the character NUL"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_pointer(body: Any, pointer_and_text: str) -> None:
    assert refused("produce", body).description.startswith(f"Schema Validation Error - {pointer_and_text}")


@pytest.mark.parametrize(
    ("operation", "body", "pointer_and_text"),
    [
        ("create_instance", {"responseMinBytes": -2}, "/responseMinBytes: must have a minimum value of -1"),
        ("create_instance", {"fetch.min.bytes": 10_000_001}, "/fetch.min.bytes: must have a maximum value of 10000000"),
        ("create_instance", {"name": "a/b"}, "/name: expected 1 to 249 characters without '/' and NUL"),
        ("create_instance", {"autoCommitEnable": "yes"}, "/autoCommitEnable: true or false expected"),
        ("create_instance", {"format": "xml"}, "/format: does not have a value in the enumeration"),
        ("subscribe", {"topics": ["^a"]}, "/topics/0: is not a topic name: 1 to 249 of the characters a-z"),
        ("subscribe", {"topics": [".."]}, "/topics/0: is not a topic name"),
        ("subscribe", {"topic_pattern": "a\0"}, "/topic_pattern: must not contain the character NUL"),
        ("get_committed_offsets", {}, ": required property 'partitions' not found"),
        ("commit_offsets", {"offsets": [{}]}, "/offsets/0: required property 'topic' not found"),
        (
            "seek",
            {"timestamps": [{"topic": "a", "partition": 0, "timestamp": None}]},
            "/timestamps/0/timestamp: an ISO",
        ),
        (
            "start_replay",
            {"ranges": [{"topic": "a"}], "filter": {"reasons": ["tired"]}},
            '/filter/reasons/0: does not have a value in the enumeration ["backend", ',
        ),
    ],
)
def test_of_other_bodies_too(operation: str, body: Any, pointer_and_text: str) -> None:
    assert refused(operation, body).description.startswith(f"Schema Validation Error - {pointer_and_text}")


def test_all_that_is_wrong_is_said_at_once() -> None:
    fault = refused(
        "produce", {"keyFormat": "XML", "odd": 1, "records": [{"partition": -1}, {}, {"headers": {"h": 1}}]}
    )
    assert fault.metadata is not None
    errors: Any = fault.metadata["errors"]
    assert {one["pointer"] for one in errors} == {"/keyFormat", "/odd", "/records/0/partition", "/records/2/headers/h"}
    assert fault.description == f"Schema Validation Error - {errors[0]['pointer']}: {errors[0]['message']}"


def test_a_body_of_nonsense_gets_an_answer_of_bounded_size() -> None:
    fault = refused("produce", {"records": [5] * 10_000})
    assert fault.metadata is not None
    errors: Any = fault.metadata["errors"]
    assert len(errors) == 100


@pytest.mark.parametrize(
    "format_", ["AVRO", "avro", "Avro", "JSONSCHEMA", "jsonSchema", "json", "binary", "pRoToBuF", 0, 5]
)
def test_formats_in_any_case_and_as_integers(format_: object) -> None:
    body = {"keyFormat": format_, "records": []}
    assert PRODUCE.body(body) is body


def test_what_is_said_the_plain_way_is_taken_as_it_stands() -> None:
    body = {
        "keyFormat": "STRING",
        "valueSchemaId": 7,
        "records": [{"key": "a", "value": None, "partition": 0, "headers": {"h": "1"}}, {"headers": [{"key": "a"}]}],
    }
    assert PRODUCE.body(body) is body


def test_aliases_nulls_and_whole_numbers_with_a_point_come_in_the_plain_way() -> None:
    given = {
        "key_format": "json",
        "valueFormat": 1.0,
        "value_schema_id": None,
        "records": [
            {"key": {"n": 5.0, "correlation_id": None}, "partition": 5.0, "correlation_id": "c", "headers": None}
        ],
    }
    plain = PRODUCE.body(given)
    assert plain == {
        "keyFormat": "json",
        "valueFormat": 1,
        "records": [{"key": {"n": 5.0, "correlation_id": None}, "partition": 5, "correlationId": "c"}],
    }
    assert isinstance(plain["records"][0]["partition"], int)
    assert isinstance(plain["records"][0]["key"]["n"], float)


def test_the_first_name_wins_over_its_alias() -> None:
    assert PRODUCE.body({"value_format": "json", "valueFormat": "string", "records": []})["valueFormat"] == "string"
    assert PRODUCE.body({"value_format": "json", "valueFormat": None, "records": []})["valueFormat"] == "json"


def test_dotted_names_are_members_too() -> None:
    assert CREATE.body({"auto.offset.reset": "earliest", "auto.commit.enable": "false", "fetch.min.bytes": 1}) == {
        "autoOffsetReset": "earliest",
        "autoCommitEnable": "false",
        "responseMinBytes": 1,
    }


@pytest.mark.parametrize("member", ["partitions", "offsets"])
def test_committed_offsets_are_asked_for_by_either_member(member: str) -> None:
    partitions = [{"topic": "a", "partition": 0}]
    assert COMMITTED.body({member: partitions}) == {"partitions": partitions}


def test_each_operation_has_a_name_of_its_own_and_says_who_may_call_it() -> None:
    assert PRODUCE.scopes == (frozenset({"kafka:w"}),)
    assert CONTRACT.operations["read_records"].scopes == (frozenset({"kafka:r"}),)
    assert COMMITTED.scopes == (frozenset({"kafka:r"}), frozenset({"kafka:w"}))  # either
    assert CONTRACT.operations["liveness"].scopes == ()
