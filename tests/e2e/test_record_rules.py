"""Mirrors and content rules as operators work with them: `meshctl` on a whole mesh, records on both real clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from tests.fixtures.meshes import Mesh
from tests.fixtures.record_rules import Side
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

WITHIN_S = 90.0


class Operator:
    """`meshctl` about one rule."""

    def __init__(self, mesh: Mesh, kind: str, rule_id: str) -> None:
        self._mesh, self._kind, self._rule_id = mesh, kind, rule_id

    def __call__(self, verb: str, *arguments: str) -> str:
        return self._mesh.meshctl(self._kind, verb, self._rule_id, *arguments).stdout

    def shown(self) -> dict[str, Any]:
        rule: dict[str, Any] = json.loads(self("show", "-o", "json"))
        return rule

    def figure(self, name: str) -> str | None:
        """A figure of the rule, as soon as a router tells it."""
        progress = self.shown().get("progress") or {}
        return progress.get(name)

    def carried_out(self) -> bool:
        """Whether a router runs the rule as it was decided last, without a problem."""
        rule = self.shown()
        progress = rule.get("progress") or {}
        return progress.get("revision") == rule["revision"] and not progress["problem"]

    def watched(self) -> list[str]:
        """Two looks at all rules of the kind, and what is said of this one."""
        lines = self._mesh.meshctl(self._kind, "list", "-w", "-n", "2", "--interval", "0.5").stdout.splitlines()
        return [line for line in lines if line.startswith(self._rule_id)]


@pytest.fixture
def sides(mesh: Mesh) -> Iterator[tuple[Side, Side]]:
    """The real clusters of the session's mesh; topics made on them are gone afterwards."""
    both = Side("c1", mesh.cluster("c1")), Side("c2", mesh.cluster("c2"))
    yield both
    for side in both:
        side.clean()


@pytest.fixture
def operate(mesh: Mesh, unique_name: Callable[[str], str]) -> Iterator[Callable[[str], Operator]]:
    """`operate("mirror")`: the operator of a rule that is removed after the test."""
    made: list[tuple[str, str]] = []

    def operator(kind: str) -> Operator:
        rule_id = f"e2e-{unique_name(kind)[-20:]}".lower().strip("-")
        made.append((kind, rule_id))
        return Operator(mesh, kind, rule_id)

    yield operator
    for kind, rule_id in made:
        mesh.meshctl(kind, "remove", rule_id, check=False)


def values(side: Side, topic: str) -> list[bytes | None]:
    return [each.value for each in side.read(topic)]


def test_a_mirror_is_made_watched_paused_resumed_rewound_and_removed(
    sides: tuple[Side, Side], operate: Callable[[str], Operator], topic: str
) -> None:
    (c1, c2), mirror = sides, operate("mirror")
    c1.create(topic, 2)
    c2.will_have(topic)
    _produce(c1, topic, b"first", b"second")

    assert "(running)" in mirror("create", "--from", "c1", "--to", "c2", "--topic", topic, "--reason", "a test")
    wait_until(lambda: len(c2.read(topic) if c2.partitions(topic) else []) == 2, "both records are copied", WITHIN_S)
    assert c2.partitions(topic) == 2
    wait_until(mirror.carried_out, "the router says that it runs the mirror", WITHIN_S)
    watched = mirror.watched()
    assert len(watched) == 2
    assert f"c1/{topic} -> c2/{topic}" in watched[0]
    assert "running" in watched[0]

    assert "(paused)" in mirror("pause")
    wait_until(mirror.carried_out, "the router has paused the mirror", WITHIN_S)
    since = datetime.now(UTC).isoformat(timespec="milliseconds")  # as exact as the times of records, and not later
    _produce(c1, topic, b"third")
    wait_until(lambda: "paused" in mirror.watched()[0], "the mirror is shown as paused", WITHIN_S)
    assert sorted(values(c2, topic), key=str) == [b"first", b"second"], "nothing flows"

    mirror("resume")
    wait_until(lambda: values(c2, topic).count(b"third") == 1, "what came meanwhile is copied", WITHIN_S)
    wait_until(lambda: mirror.figure("lag") == "0", "nothing is left to do", WITHIN_S)

    mirror("rewind", "--to", since)
    wait_until(lambda: values(c2, topic).count(b"third") == 2, "records since then are copied again", WITHIN_S)
    assert values(c2, topic).count(b"first") == 1, "and no others"

    assert "removed at revision" in mirror("remove")
    _produce(c1, topic, b"fourth")
    listed = json.loads(mirror._mesh.meshctl("mirror", "list", "-o", "json").stdout)
    assert mirror._rule_id not in [rule["spec"]["record_rule_id"] for rule in listed["record_rules"]]
    history = mirror._mesh.meshctl("history", "--record-rule", mirror._rule_id).stdout
    for step in ("created", "paused", "resumed", "begins again", "removed"):
        assert step in history


def test_a_content_rule_distributes_records_over_topics_and_clusters(
    sides: tuple[Side, Side], operate: Callable[[str], Operator], topic: str
) -> None:
    (c1, c2), content = sides, operate("content")
    c1.create(topic, 2)
    for name in (f"{topic}.de", f"{topic}.rest", f"{topic}.dlq"):
        c1.create(name)
    c2.create(f"{topic}.fr")
    _produce(c1, topic, b'{"country": "DE"}', b'{"country": "FR"}', b'{"country": "IT"}', b"no json")

    branches = ("--when", "value.country == 'DE'", "--to", f"{topic}.de", "--when", "value.country == 'FR'")
    content(
        "create", "--from", "c1", "--topic", topic, *branches, "--to", f"c2/{topic}.fr", "--otherwise", f"{topic}.rest"
    )

    expected = {
        (c1, f"{topic}.de"): b'{"country": "DE"}',
        (c2, f"{topic}.fr"): b'{"country": "FR"}',
        (c1, f"{topic}.rest"): b'{"country": "IT"}',
        (c1, f"{topic}.dlq"): b"no json",
    }
    for (side, name), value in expected.items():
        wait_until(partial(values, side, name), f"{name} has a record", WITHIN_S)
        assert values(side, name) == [value]
    wait_until(lambda: content.figure("records_dead") == "1", "the dead letter is counted", WITHIN_S)
    assert "by content" in content.watched()[0]


def _produce(side: Side, topic: str, *records: bytes) -> None:
    """Records with the time of now."""
    producer = side.producer()
    for number, value in enumerate(records):
        producer.produce(topic, value, b"%d" % number)
    assert producer.flush(WITHIN_S) == 0
