"""Receipts over the whole mesh: real clients, gateway, Kafka, Spark, PostgreSQL, and what an operator is told.

The page see-who-has-read.md is typed as it stands.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.e2e.pipeline.archivist import PARTITIONS
from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import ROOT, steps, take
from tests.fixtures.record_rules import Side
from tests.fixtures.waiting import wait_unless
from tests.integration.gateway.records import read_all

PAGE = ROOT / "docs" / "how-to" / "see-who-has-read.md"
WITHIN_S = 180.0
"""Spark may only be starting."""

pytestmark = pytest.mark.timeout(600)


def receipts(mesh: Mesh, topic: str, *more: str) -> list[dict[str, Any]]:
    told = json.loads(mesh.meshctl("receipts", "topic", topic, *more, "-o", "json").stdout)
    found: list[dict[str, Any]] = told["receipts"]
    return found


def await_receipts(mesh: Mesh, topic: str, expected: object, *more: str) -> None:
    """Until client, partition and state (or the ranges) of the topic's receipts are these."""

    def told(each: dict[str, Any]) -> tuple[object, ...]:
        if "--offset" in more:
            content: object = each["state"].removeprefix("RECEIPT_STATE_")
        else:
            content = [(int(one.get("first_offset", 0)), int(one["last_offset"])) for one in each["ranges"]]
        (client,) = each["clients"]
        return (client, each.get("partition", 0), content, each.get("earlier_topic", False))

    def obstacle() -> str | None:
        found = [told(each) for each in receipts(mesh, topic, *more)]
        return None if found == expected else f"so far {found}"

    wait_unless(obstacle, f"the receipts are {expected}", WITHIN_S)


def test_the_page_is_typed_as_it_stands(spark_mesh: Mesh) -> None:
    instead = {"plums": f"plums-{uuid.uuid4().hex[:6]}"}
    for step in steps(PAGE.read_text(encoding="utf-8")):
        take(step, spark_mesh.state.parent, instead)


def connected(mesh: Mesh, client_id: str) -> str | None:
    found = json.loads(mesh.meshctl("clients", "--client-id", client_id, "-o", "json").stdout)
    return str(found["clients"]) if found.get("clients") else None


def values(count: int) -> list[tuple[int, bytes | None]]:
    """So many records of partition 0."""
    return [(0, str(number).encode()) for number in range(count)]


def test_an_operator_is_told_who_had_a_record_of_a_topic_that_moved_and_was_created_again(
    spark_mesh: Mesh, sides: dict[str, Side], apples: str
) -> None:
    c1, c2 = sides["c1"], sides["c2"]
    c1.write(apples, values(40))
    assert len(read_all(spark_mesh.gateway, apples, **{"client.id": "early"})) == 40
    wait_unless(lambda: connected(spark_mesh, "early"), "its last Fetch can't be answered with later records", 60)
    c1.write(apples, values(9))
    assert len(read_all(spark_mesh.gateway, apples, **{"client.id": "late"})) == 49

    record = ("--offset", "45", "--partition", "0")
    await_receipts(spark_mesh, apples, [("early", 0, "NOT_SENT", False), ("late", 0, "SENT", False)], *record)
    await_receipts(spark_mesh, apples, [("early", 0, [(0, 39)], False), ("late", 0, [(0, 48)], False)])
    assert "2 readers: 1 sent, 1 not sent." in spark_mesh.meshctl("receipts", "topic", apples, *record).stdout

    # moved to the other cluster: what was read there counts as well
    spark_mesh.meshctl("rule", "set", "--topic", apples, "--to", "c2", "--first")
    c2.write(apples, values(60))
    assert len(read_all(spark_mesh.gateway, apples, **{"client.id": "mover"})) == 60
    after = [("early", 0, "NOT_SENT", False), ("late", 0, "SENT", False), ("mover", 0, "SENT", False)]
    await_receipts(spark_mesh, apples, after, *record)

    # created again: what was read of the earlier topic does not count any more
    c2.delete(apples)
    wait_unless(lambda: "it is there" if c2.partitions(apples) else None, "the topic is gone", 60)
    c2.create(apples, PARTITIONS)
    c2.write(apples, values(50))
    wait_unless(
        lambda: None if len(read_all(spark_mesh.gateway, apples, **{"client.id": "anew"})) == 50 else "it is not known",
        "the new topic is read",
        60,
    )
    again = [
        ("anew", 0, "SENT", False), ("early", 0, "NOT_SENT", False), ("late", 0, "SENT", False),
        ("mover", 0, "SENT", True),
    ]  # fmt: skip
    await_receipts(spark_mesh, apples, again, *record)
