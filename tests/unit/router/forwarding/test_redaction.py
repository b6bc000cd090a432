"""Redaction replaces what a path names, and no other byte."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.judging.redaction import REDACTED, Redaction
from mesh.record_transforms import ELEMENTS, JsonPath, json_path


def redacted(text: str, path: str) -> str:
    return Redaction(json_path(path))(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ('{"card":{"number":"4111","cvc":1}}', "card.number", '{"card":{"number":"***","cvc":1}}'),
        ('{"card":{"number":4111}}', "card", '{"card":"***"}'),
        ('{"card":null}', "card", '{"card":"***"}'),
        ('{"orders":[{"price":1},{"prize":2},{"price":[3]}]}', "orders[*].price",
         '{"orders":[{"price":"***"},{"prize":2},{"price":"***"}]}'),
        ('[{"a":1},[{"a":1}],7]', "[*].a", '[{"a":"***"},[{"a":1}],7]'),
        ("[1,[2]]", "[*]", '["***","***"]'),
        ('{"a.b":1,"a":{"b":1}}', "['a.b']", '{"a.b":"***","a":{"b":1}}'),
        ('{"größe":1}', "größe", '{"größe":"***"}'),
        ('{ "a" : 1.50 ,\n "b":12345678901234567890.10 }', "a", '{ "a" : "***" ,\n "b":12345678901234567890.10 }'),
        ('{"a": {"x": "}]\\""}, "b": [ ]}', "a", '{"a": "***", "b": [ ]}'),
        ('{"n\\u0061me":"Ann"}', "name", '{"n\\u0061me":"***"}'),
    ],
)  # fmt: skip
def test_examples(text: str, path: str, after: str) -> None:
    assert redacted(text, path) == after


@pytest.mark.parametrize(
    "text", ['{"card":1}', '{"cards":[]}', '"card"', "7", "[]", "{}", '{"other":{"card":{"number":1}}}']
)
def test_where_the_field_is_not_there_the_value_stays(text: str) -> None:
    assert redacted(text, "card.number") == text


def test_a_name_that_comes_twice_is_redacted_twice() -> None:
    """Readers differ in which of the two they believe."""
    text = '{"card":{"number":"4111"},"card":{}}'
    assert redacted(text, "card.number") == '{"card":{"number":"***"},"card":{}}'


def test_json_that_is_deeper_than_it_can_be_written() -> None:
    deep = "[" * 500 + "]" * 500
    assert redacted(f'{{"a":{deep},"b":1}}', "b") == f'{{"a":{deep},"b":"***"}}'


NAMES = st.sampled_from(["a", "b", "name", "größe", 'quo"te', "back\\slash"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)
PATHS = st.lists(NAMES | st.just(ELEMENTS), min_size=1, max_size=4).map(tuple)
LAYOUTS = st.sampled_from(
    [{"separators": (",", ":"), "ensure_ascii": False}, {}, {"indent": 2}, {"ensure_ascii": False, "indent": "\t"}]
)


def leaves(document: Any, path: JsonPath, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the path leads in a document."""
    if not path:
        yield at
    elif path[0] is ELEMENTS and isinstance(document, list):
        for number, element in enumerate(document):
            yield from leaves(element, path[1:], (*at, number))
    elif path[0] is not ELEMENTS and isinstance(document, dict) and path[0] in document:
        yield from leaves(document[path[0]], path[1:], (*at, path[0]))


@given(DOCUMENTS, PATHS, LAYOUTS)
def test_only_the_named_field_changes(document: Any, path: JsonPath, layout: dict[str, Any]) -> None:
    expected = copy.deepcopy(document)
    for *way, last in leaves(document, path):
        place = expected
        for step in way:
            place = place[step]
        place[last] = REDACTED
    before = json.dumps(document, **layout)
    after = Redaction(path)(before.encode()).decode()
    assert json.loads(after) == expected
    assert after == json.dumps(expected, **layout), "byte for byte"
