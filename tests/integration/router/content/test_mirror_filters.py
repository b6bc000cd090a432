"""Mirrors that take some of the records, and change them on the way."""

from __future__ import annotations

from mesh.rpc.v1.record_rules_pb2 import HeaderValue, Transform
from services.router.forwarding.orders import RunRule
from tests.fixtures.content_rules import Given, send, values
from tests.fixtures.record_rules import Side, Workers, ends, mirror

RECORDS = [
    Given("a-1", b'{"kind":"apple","price":3}', {"color": "red", "trace": "t"}),
    Given("a-2", b'{"kind":"apple","price":5}', {"color": "green"}),
    Given("b-1", b'{"kind":"pear","price":5}'),
    Given("b-2", None, {"color": "red"}),
]


FILTERS = {
    "header": ("headers.color == 'red'", [0, 3]),
    "key": ("key.startsWith('a-')", [0, 1]),
    "field": ("value.price > 4", [1, 2]),
    "tombstone": ("value == null || value.kind == 'pear'", [2, 3]),
    "place": ("offset == 2 && timestamp > timestamp('2020-01-01T00:00:00Z')", [2]),
}
"""Name -> the expression, and the numbers of the records that it takes."""
CHANGES = {
    "set": (
        Transform(set_header=HeaderValue(name="color", value="any")),
        RECORDS[0].value,
        {"trace": b"t", "color": b"any"},
    ),
    "drop": (Transform(drop_header="trace"), RECORDS[0].value, {"color": b"red"}),
    "redact": (
        Transform(redact_json_field="kind"),
        b'{"kind":"***","price":3}',
        {"color": b"red", "trace": b"t"},
    ),
}
"""Name -> the change, and what it leaves of the first record."""


def test_filters_by_header_key_and_json_field(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    send(c1, topic, RECORDS)
    for name, (expression, _) in FILTERS.items():
        copy = c2.will_have(f"{topic}.{name}")
        workers.run(RunRule(mirror(name, topic, target_topic=copy, filter=expression), 12, 11))

    source = c1.read(topic)
    for name, (_, taken) in FILTERS.items():
        workers.wait_until_caught_up(name, ends(c1, topic))
        copies = c2.read(f"{topic}.{name}")
        assert [each.content for each in copies] == [source[number].content for number in taken], name


def test_each_change(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    send(c1, topic, RECORDS[:1])
    for name, (transform, _, _) in CHANGES.items():
        copy = c2.will_have(f"{topic}.{name}")
        workers.run(RunRule(mirror(name, topic, target_topic=copy, transforms=[transform]), 12, 11))

    for name, (_, value, headers) in CHANGES.items():
        workers.wait_until_caught_up(name, ends(c1, topic))
        [changed] = c2.read(f"{topic}.{name}")
        assert changed.value == value, name
        assert {header: text for header, text in changed.headers if header != "mesh-origin"} == headers, name


def test_a_record_that_can_not_be_judged_holds_the_mirror_until_the_filter_is_another_one(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    c1.create(topic)
    c2.will_have(topic)
    send(c1, topic, [Given("k", b'{"price":3}'), Given("k", b'{"price":"3"}'), Given("k", b'{"price":4}')])

    workers.run(RunRule(mirror("apples", topic, filter="value.price > 2"), 12, 11))
    said = workers.wait_for("apples", "stops", lambda progress: progress.problem)
    assert said.problem == (
        f"{topic}-0 offset 1: the filter can't be applied: types that do not go together: _>_(string, int64)"
    )
    workers.wait_until_caught_up("apples", {(topic, 0): 1})
    assert values(c2.read(topic)) == [b'{"price":3}']

    workers.run(RunRule(mirror("apples", topic, filter="int(value.price) > 2"), 13, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == [b'{"price":3}', b'{"price":"3"}', b'{"price":4}']
