"""Filters and transforms of records."""

from __future__ import annotations

import pytest

from mesh.judging.filters import Filter
from mesh.judging.records import Content, UnjudgedError
from mesh.judging.transforms import Transforms
from mesh.judging.values import LARGEST_VALUE
from mesh.record_expressions import InvalidExpressionError
from mesh.rpc.v1.record_rules_pb2 import HeaderValue, Transform
from tests.unit.router.forwarding.records import Sample, sample


@pytest.mark.parametrize(
    ("expression", "record", "taken"),
    [
        ("headers.kind == 'order'", sample(kind="order"), True),
        ("headers.kind == 'order'", sample(kind="payment"), False),
        ("headers.kind == 'order'", sample(), False),
        ("key == 'k'", sample(key="k"), True),
        ("key == null", sample(key=None), True),
        ("key == b'\\xff'", Sample(key_=b"\xff"), True),
        ("value.country == 'DE'", sample({"country": "DE"}), True),
        ("value.country == 'DE'", sample({"land": "DE"}), False),
        ("value.country == 'DE'", sample(None), False),
        ("value == null", sample(None), True),
        ("value[0] == 1", sample([1]), True),
        ("topic == 'orders' && partition == 3 && offset == 42", sample(), True),
        ("timestamp == timestamp('2023-11-14T22:13:20Z')", sample(), True),
        ("timestamp < timestamp('2023-11-14T22:13:20Z')", Sample(time=-1), True),
        ("timestamp > timestamp('2023-11-14T22:13:20Z')", Sample(time=2**62), True),
        ("timestamp < timestamp('2023-11-14T22:13:20Z')", Sample(time=-(2**63)), True),
    ],
)
def test_a_filter_takes_what_its_expression_is_true_of(expression: str, record: Sample, taken: bool) -> None:
    assert Filter(expression)(record) is taken


def test_of_a_header_that_comes_twice_the_last_one_counts() -> None:
    record = Sample(headers_=[("kind", b"a"), ("kind", b"b"), ("none", None), ("bytes", b"\xff")])
    assert Filter("headers.kind == 'b' && headers.none == '' && headers.bytes == '\\ufffd'")(record)


def test_a_value_is_read_only_where_the_expression_speaks_of_it() -> None:
    assert Filter("headers.kind == 'a'")(sample(raw=b"no JSON", kind="a")) is True


def test_a_value_that_is_no_json_matters_only_where_it_is_needed() -> None:
    guarded = Filter("headers.kind == 'json' && value.a == 1")
    assert guarded(sample(raw=b"no JSON", kind="text")) is False
    with pytest.raises(UnjudgedError, match=r"the value is not JSON: .* \(character 1\)"):
        guarded(sample(raw=b"hunter2", kind="json"))


@pytest.mark.parametrize("raw", [b"", b"\xff", b'{"a":1', b"[" * 2000, b'{"a":NaN}', b"\xef\xbb\xbf{}"])
def test_what_is_no_json(raw: bytes) -> None:
    with pytest.raises(UnjudgedError, match="the value is not JSON"):
        Filter("value.a == 1")(sample(raw=raw))


def test_values_are_read_up_to_a_bound() -> None:
    with pytest.raises(UnjudgedError, match="values are read up to 16777216"):
        Filter("value.a == 1")(sample(raw=b" " * (LARGEST_VALUE + 1)))


def test_wrong_types_stop_a_mirror_with_a_sentence() -> None:
    with pytest.raises(UnjudgedError, match=r"the filter can't be applied: types that do not go together: _>_"):
        Filter("value.amount > 10")(sample({"amount": "12"}))


def test_a_text_that_is_no_expression_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidExpressionError):
        Filter("value.amount >")


def test_headers_are_set_in_place_of_all_of_their_name() -> None:
    headers = [("a", b"1"), ("b", b"2"), ("a", None)]
    changed = Transforms([Transform(set_header=HeaderValue(name="a", value="ä"))])(Content(b"x", headers))
    assert changed == Content(b"x", [("b", b"2"), ("a", "ä".encode())])
    assert headers == [("a", b"1"), ("b", b"2"), ("a", None)], "the record's own are left as they are"


def test_headers_are_dropped_all_of_a_name() -> None:
    changed = Transforms([Transform(drop_header="a")])(Content(None, [("a", b"1"), ("b", b"2"), ("a", b"3")]))
    assert changed == Content(None, [("b", b"2")])


def test_transforms_are_applied_in_their_order() -> None:
    set_a = Transform(set_header=HeaderValue(name="a", value="1"))
    assert Transforms([set_a, Transform(drop_header="a")])(Content(b"", [])) == Content(b"", [])
    assert Transforms([Transform(drop_header="a"), set_a])(Content(b"", [])) == Content(b"", [("a", b"1")])


def test_what_is_no_json_is_not_passed_on_unredacted() -> None:
    redacted = Transforms([Transform(redact_json_field="card.number")])
    assert redacted(Content(None, [])) == Content(None, []), "a tombstone holds nothing"
    with pytest.raises(UnjudgedError, match=r"card.number can't be redacted: the value is not JSON"):
        redacted(Content(b"card 4111", []))
