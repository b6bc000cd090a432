"""Quotas are divided by use: nobody starves, and all gateways together have the whole quota."""

from __future__ import annotations

import random

import pytest

from mesh.quotas import Key
from mesh.quotas.codec import shares_from_proto, shares_to_proto, uses_from_proto, uses_to_proto
from mesh.quotas.policy import Sharers
from mesh.quotas.shares import FLOOR, Use, shares

ALICE: Sharers = (Key.PRODUCER_BYTE_RATE, "alice", None, None)


def divided(**uses: Use | None) -> dict[str, float]:
    reports = {name: {} if use is None else {ALICE: use} for name, use in uses.items()}
    return {name: each[ALICE] for name, each in shares(reports, frozenset(uses)).items()}


def test_the_only_gateway_that_is_used_has_nearly_all() -> None:
    assert divided(a=Use(0.5, pauses=True), b=None) == {"a": pytest.approx(0.95), "b": pytest.approx(0.05)}


def test_gateways_whose_clients_pause_have_equal_parts_whatever_they_had() -> None:
    assert divided(a=Use(0.95, pauses=True), b=Use(0.05, pauses=True)) == {
        "a": pytest.approx(0.5),
        "b": pytest.approx(0.5),
    }


def test_a_gateway_without_pauses_keeps_its_use_and_some_headroom() -> None:
    found = divided(a=Use(0.2, pauses=False), b=Use(0.8, pauses=True), c=None)
    assert found["a"] == pytest.approx(0.2 * 1.25 + FLOOR / 3)
    assert found["b"] == pytest.approx(1 - found["a"] - FLOOR / 3)


def test_a_quota_that_nobody_uses_is_not_divided() -> None:
    assert shares({}, frozenset({"a", "b"})) == {"a": {}, "b": {}}
    assert shares({"gone": {ALICE: Use(1.0, pauses=True)}}, frozenset({"a"})) == {"a": {}}


def test_parts_are_one_quota_and_each_use_has_its_room_while_there_is_some() -> None:
    chance = random.Random(3)  # a seed, so that a failure can be repeated
    for _ in range(1_000):
        uses = {
            f"g{number}": Use(chance.random(), chance.random() < 0.3) if chance.random() < 0.8 else None
            for number in range(chance.randint(1, 8))
        }
        if not any(uses.values()):
            continue
        found = divided(**uses)
        assert sum(found.values()) == pytest.approx(1.0)
        assert min(found.values()) >= FLOOR / len(uses) * 0.999
        content = {name for name, use in uses.items() if use is not None and not use.pauses}
        hungry = [found[name] for name, use in uses.items() if use is not None and use.pauses]
        assert len({round(each, 9) for each in hungry}) <= 1
        if hungry:
            assert all(found[name] <= hungry[0] + 1e-9 for name in content)


def test_uses_and_shares_come_back_from_their_messages() -> None:
    other: Sharers = (Key.CONNECTION_CREATION_RATE, None, None, "10.0.0.1")
    uses = {ALICE: Use(0.5, pauses=True), other: Use(0.25, pauses=False)}
    assert uses_from_proto(uses_to_proto(uses)) == uses
    message = shares_to_proto(3, {ALICE: 0.5, other: 0.25})
    assert (message.gateways, shares_from_proto(message)) == (3, {ALICE: 0.5, other: 0.25})
