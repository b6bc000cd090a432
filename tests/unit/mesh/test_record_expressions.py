"""The language of rules about records, as a table of examples."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mesh.record_expressions import (
    MAX_LENGTH,
    Expression,
    Facts,
    InvalidExpressionError,
    UndecidedError,
    check_expression,
)
from mesh.rpc import record_rules

ORDER = {"customer": {"country": "DE", "vip": True}, "amount": 12.5, "count": 3, "items": [{"sku": "a"}, {"sku": "b"}]}


def record(value: Any = ORDER, **other: Any) -> dict[str, object]:
    """An order, with what is said in place of what it has."""
    known = {
        "key": "k-17",
        "headers": {"kind": "order", "content-type": "application/json"},
        "value": value,
        "topic": "orders",
        "partition": 3,
        "offset": 12345,
        "timestamp": datetime(2026, 11, 21, 20, 59, tzinfo=UTC),
    }
    return {**known, **other}


@pytest.mark.parametrize(
    "expression",
    [
        "headers.kind == 'order'",
        "headers['content-type'].startsWith('application/')",
        "'kind' in headers && !('trace' in headers)",
        "key.startsWith('k-')",
        "topic == 'orders' && partition == 3 && offset > 12344",
        "timestamp > timestamp('2026-11-21T00:00:00Z') && timestamp.getFullYear() == 2026",
        "value.customer.country in ['DE', 'AT', 'CH']",
        "value.customer.vip",
        "value.amount > 10",  # numbers compare by value: 12.5 is no integer
        "value.count == 3.0",
        "value.items.exists(item, item.sku == 'b')",
        "value.items.all(item, has(item.sku)) && size(value.items) == 2",
        "value.customer.country.matches('^(?i)de$')",
        "has(value.customer) && !has(value.discount)",
        "value.nothing == 1 || headers.kind == 'order'",  # one side decides alone
    ],
)
def test_true_of_an_order(expression: str) -> None:
    assert Expression(expression)(record()) is True


@pytest.mark.parametrize(
    "expression",
    [
        "headers.kind == 'payment'",
        "headers.nothing == 'order'",
        "value.nothing == 1",
        "value.nothing != 1",  # what is not there is not different, either
        "!(value.nothing == 1)",
        "value.nothing.more == 1",
        "value.items[7].sku == 'a'",
        "value.customer.country.code == 'DE'",  # a text has no fields
        "value.nothing.exists(item, item.sku == 'a')",
        "value.count == '3'",  # of different types, so not equal
        "value.customer.country.matches('(a+)+$')",
    ],
)
def test_not_true_of_an_order(expression: str) -> None:
    assert Expression(expression)(record()) is False


@pytest.mark.parametrize("expression", ["value.country == 'DE'", "value['country'] == 'DE'", "'country' in value"])
@pytest.mark.parametrize("value", [None, "a text", 5])
def test_what_has_no_fields_has_not_this_one(expression: str, value: object) -> None:
    assert Expression(expression)(record(value)) is False


def test_a_tombstone_is_null() -> None:
    assert Expression("value == null")(record(None)) is True


def test_a_key_is_text_bytes_or_null() -> None:
    is_text = Expression("key == 'k'")
    assert is_text(record(key="k")) is True
    assert is_text(record(key=b"k\xff")) is False
    assert Expression("key == b'k\\xff'")(record(key=b"k\xff")) is True
    assert Expression("key == null")(record(key=None)) is True


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("value.customer.country > 10", "types that do not go together: _>_(string, int64)"),
        ("value.amount", "it is of type double here, neither true nor false"),
        ("value.count && true", "types that do not go together"),
        ("value.count / 0 == 1", "divides by zero"),
        ("value.count + 9223372036854775807 > 0", "a number is too large"),
        ("int(value.customer.country) == 1", "converts a value"),
        ("value.customer.country.matches(value.items[0].sku + '(')", "no RE2 expression"),
        ("string(b'\\xff') == 'a'", "makes a text of bytes"),
        ("value.items.all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, "
         "[1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, true)))))", "more than 10,000 steps"),
    ],
)  # fmt: skip
def test_undecided(expression: str, reason: str) -> None:
    with pytest.raises(UndecidedError) as error:
        Expression(expression)(record())
    assert reason in str(error.value)


def test_reasons_hold_nothing_of_the_record() -> None:
    with pytest.raises(UndecidedError) as error:
        Expression("int(value.secret) == 1")(record({"secret": "hunter2"}))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("expression", ["value.a == 1 && headers.kind == 'b'", "headers.kind == 'b' && value.a == 1"])
def test_what_is_not_known_matters_only_where_it_is_needed(expression: str) -> None:
    known = {"headers": {"kind": "a"}}
    assert Expression(expression)(known) is False
    known = {"headers": {"kind": "b"}}
    with pytest.raises(UndecidedError) as error:
        Expression(expression)(known)
    assert error.value.needs == "value"


def test_several_expressions_may_share_what_is_known() -> None:
    known = Facts(record())
    assert [Expression(f"value.customer.country == '{name}'")(known) for name in ("FR", "DE")] == [False, True]
    with pytest.raises(UndecidedError):
        Expression("value.amount")(known)
    assert Expression("value.nothing == 1")(known) is False


def test_an_expression_knows_what_it_speaks_about() -> None:
    assert Expression("value.a == 1 && headers.kind == topic").names == {"value", "headers", "topic"}
    assert Expression("[1].exists(value, value == 1)").names == frozenset()


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "it is empty"),
        ("headers.kind = 'a'", "at character 14"),
        ("true &&\n  kind == 'a'", "line 2, character 3: undeclared reference to 'kind' (known: key, headers, value"),
        ("headers.kind > 3", "no matching overload for '_>_' applied to '(string, int)'"),
        ("headers.kind", "is of type string; it must be true or not"),
        ("value.items.map(i, i.n)", "ask with exists, all or exists_one"),
        ("(" * 40 + "true" + ")" * 40, "nested more than 32 levels deep"),
        ("value" + ".a" * 40 + " == 1", "nested more than 32 levels deep"),
        ("true" + " " * MAX_LENGTH, "at most 4096 characters"),
        ("nothing(value)", "undeclared reference to 'nothing'"),
    ],
)
def test_refused(expression: str, reason: str) -> None:
    with pytest.raises(InvalidExpressionError) as error:
        check_expression(expression)
    assert reason in str(error.value)


def test_nobody_reads_values_that_are_bytes() -> None:
    check_expression("headers.kind == 'a'", record_rules.VALUE_FORMAT_BYTES)
    with pytest.raises(InvalidExpressionError, match="speaks of value"):
        check_expression("value.a == 1", record_rules.VALUE_FORMAT_BYTES)
