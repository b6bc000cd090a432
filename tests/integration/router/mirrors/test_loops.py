"""Mirrors in both directions: each side has every record once, and no record comes home."""

from __future__ import annotations

from functools import partial

from services.router.forwarding.orders import RunRule
from tests.fixtures.record_rules import WITHIN_S, Side, Workers, ends, mirror
from tests.fixtures.waiting import wait_until

ROUNDS = 3
RECORDS = 40


def test_two_way_mirrors_of_one_topic_give_each_side_each_record_once(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    for side in (c1, c2):
        side.create(topic, 2)
    workers.run(RunRule(mirror("there", topic), 12, 12))
    workers.run(RunRule(mirror("back", topic, source="c2", target="c1"), 13, 13))
    workers.wait_for("there", "runs", lambda said: said.revision)
    workers.wait_for("back", "runs", lambda said: said.revision)

    written: list[bytes] = []
    for first in range(0, ROUNDS * RECORDS, RECORDS):  # in lots: what came over is read by the way back meanwhile
        for side in (c1, c2):
            values = [f"{side.name}-{number}".encode() for number in range(first, first + RECORDS)]
            side.write(topic, [(index % 2, value) for index, value in enumerate(values)])
            written += values
        for side in (c1, c2):
            wait_until(partial(_has, side, topic, len(written)), f"all are on {side.name}", WITHIN_S)

    both_caught_up(c1, c2, workers, topic)
    for side in (c1, c2):
        copies = side.read(topic)
        assert sorted(copy.value or b"" for copy in copies) == sorted(written)
        own = [copy for copy in copies if (copy.value or b"").startswith(side.name.encode())]
        assert all(name != "mesh-origin" for copy in own for name, _ in copy.headers), "none came home"


def test_clusters_that_are_one_and_the_same_are_refused(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    workers.run(RunRule(mirror("apples", topic, target="c1", target_topic=f"{topic}.copy"), 12, 12))
    said = workers.wait_for("apples", "has a problem", lambda said: said.problem)
    assert "one and the same Kafka cluster" in said.problem


def both_caught_up(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    """Both mirrors have read what both have written: whatever could have come back is there."""
    for rule_id, side in (("there", c1), ("back", c2)):
        workers.wait_until_caught_up(rule_id, ends(side, topic))


def _has(side: Side, topic: str, count: int) -> bool:
    return len(side.read(topic)) >= count
