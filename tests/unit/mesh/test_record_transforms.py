"""Which changes of records are allowed, and how paths read."""

from __future__ import annotations

import pytest

from mesh.record_transforms import ELEMENTS, InvalidTransformError, JsonPath, check_transform, json_path
from mesh.rpc import record_rules
from mesh.rpc.v1.record_rules_pb2 import HeaderValue, Transform


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("email", ("email",)),
        ("customer.card.number", ("customer", "card", "number")),
        ("orders[*].lines[*].price", ("orders", ELEMENTS, "lines", ELEMENTS, "price")),
        ("[*].email", (ELEMENTS, "email")),
        ("['card.number']", ("card.number",)),
        ("customer['card number'].cvc", ("customer", "card number", "cvc")),
        ("straße.größe-1", ("straße", "größe-1")),
        ("$.a", ("$", "a")),  # a name like any other
    ],
)
def test_paths(text: str, path: JsonPath) -> None:
    assert json_path(text) == path


@pytest.mark.parametrize("text", ["", ".", ".a", "a.", "a..b", "a[0]", "a[*", "a b", "a" * 1001, "a." * 40 + "a"])
def test_no_paths(text: str) -> None:
    with pytest.raises(InvalidTransformError, match="expected a path like"):
        json_path(text)


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (Transform(), "say which"),
        (Transform(set_header=HeaderValue(name="", value="a")), "set_header.name: needs 1 to 1000"),
        (Transform(set_header=HeaderValue(name="a", value="a" * 5000)), "set_header.value: has 5000 characters"),
        (Transform(set_header=HeaderValue(name="mesh-origin", value="a")), "'mesh-origin' is the mesh's own"),
        (Transform(drop_header="Mesh-Origin"), "is the mesh's own"),
        (Transform(redact_json_field="a["), "at character 2"),
    ],
)
def test_changes_that_are_refused(transform: Transform, reason: str) -> None:
    with pytest.raises(InvalidTransformError) as error:
        check_transform(transform)
    assert reason in str(error.value)


@pytest.mark.parametrize("value_format", [record_rules.VALUE_FORMAT_AVRO, record_rules.VALUE_FORMAT_BYTES])
def test_only_json_is_redacted(value_format: record_rules.ValueFormat.ValueType) -> None:
    check_transform(Transform(redact_json_field="a.b"), record_rules.VALUE_FORMAT_JSON)
    with pytest.raises(InvalidTransformError, match="only JSON values can be redacted"):
        check_transform(Transform(redact_json_field="a.b"), value_format)
    check_transform(Transform(drop_header="a"), value_format)
