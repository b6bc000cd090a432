"""The names of records, as subjects have them."""

import pytest

from mesh.schemas.schema import SchemaError, SchemaKind
from services.sidecar.schemas.record_name import record_name

PROTO = """
// message Commented { }
syntax = "proto3";  /* package wrong; */
package shop.v1;
option java_package = "message Quoted {";
enum Kind { NONE = 0; }
message Order { message Line { int32 n = 1; } Line line = 1; }
message Other {}
"""


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        (SchemaKind.AVRO, '{"type":"record","name":"Order","namespace":"shop.v1","fields":[]}', "shop.v1.Order"),
        (SchemaKind.AVRO, '{"type":"record","name":"shop.Order","namespace":"other","fields":[]}', "shop.Order"),
        (SchemaKind.AVRO, '{"type":"enum","name":"Size","symbols":["S"]}', "Size"),
        (SchemaKind.JSON, '{"title":"Order","type":"object"}', "Order"),
        (SchemaKind.PROTOBUF, PROTO, "shop.v1.Order"),
        (SchemaKind.PROTOBUF, "message Order{}", "Order"),
    ],
)
def test_a_record_has_the_name_that_its_schema_gives_it(kind: SchemaKind, text: str, name: str) -> None:
    assert record_name(kind, text) == name


@pytest.mark.parametrize("message", ["shop.v1.Order.Line", "Order.Line"])
def test_a_message_that_is_named_has_its_full_name(message: str) -> None:
    assert record_name(SchemaKind.PROTOBUF, PROTO, message) == "shop.v1.Order.Line"


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (SchemaKind.AVRO, '"string"', "no name"),
        (SchemaKind.AVRO, '["null","string"]', "no name"),
        (SchemaKind.AVRO, "{", "not JSON"),
        (SchemaKind.JSON, '{"type":"object"}', "no title"),
        (SchemaKind.PROTOBUF, 'syntax = "proto3";', "no message"),
    ],
)
def test_a_schema_without_a_name_is_refused(kind: SchemaKind, text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        record_name(kind, text)
