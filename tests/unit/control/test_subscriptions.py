"""Subscriptions of sidecars: what control takes, and which sidecar has to run which."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from mesh.rpc import events, subscriptions
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.sidecars.subscriptions import (
    MOST_BYTES,
    MOST_OF_SIDECAR,
    Declared,
    bring_back,
    declare,
    fold_subscriptions,
    of_sidecar,
    withdraw,
)
from services.control.store.drafts import PAYLOADS

SHOP = ("shop-1", "shop-2")


def wanted(
    name: str = "orders", sidecars: tuple[str, ...] = SHOP, **members: Any
) -> subscriptions.DeclaredSubscription:
    spec = subscriptions.SubscriptionSpec(**{"topics": ["orders"], "group": "shop", **members})
    return subscriptions.DeclaredSubscription(name=name, sidecars=sidecars, spec=spec)


def after(known: Declared, payload: Message | None, position: int = 7) -> Declared:
    assert payload is not None
    event = events.Event(position=position, actor="ada", reason="a sale")
    getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
    return fold_subscriptions(known, event)


def names(known: Declared, sidecar: str) -> list[str]:
    return [each.name for each in of_sidecar(known, sidecar)]


def test_a_subscription_is_for_the_sidecars_that_it_names_and_for_those_that_come_later() -> None:
    known = after({}, declare({}, wanted()))
    known = after(known, declare(known, wanted("prices", ("shop-*", "till"))))
    known = after(known, declare(known, wanted("all", ("*",))))
    assert names(known, "shop-1") == ["all", "orders", "prices"]
    assert names(known, "shop-99") == ["all", "prices"]
    assert names(known, "till") == ["all", "prices"]
    assert names(known, "shop") == ["all"]


def test_it_knows_who_decided_and_why_and_the_same_again_decides_nothing() -> None:
    known = after({}, declare({}, wanted(max_retries=7)))
    (one,) = known.values()
    assert (one.revision, one.actor, one.reason) == (7, "ada", "a sale")
    assert declare(known, wanted(sidecars=("shop-2", "shop-1", "shop-1"), max_retries=7)) is None
    changed = declare(known, wanted(max_retries=8))
    assert after(known, changed, 8)["orders"].spec.max_retries == 8


def test_a_caller_writes_no_output_fields() -> None:
    given = wanted()
    given.revision, given.actor = 99, "eve"
    made = declare({}, given)
    assert made is not None
    assert (made.subscription.revision, made.subscription.actor) == (0, "")


def test_a_withdrawn_one_is_gone_and_an_unknown_one_is_named() -> None:
    known = after({}, declare({}, wanted()))
    assert after(known, withdraw(known, "orders")) == {}
    with pytest.raises(Unknown, match="no subscription 'prices' \\(declared: orders\\)"):
        withdraw(known, "prices")


def test_an_earlier_revision_comes_back() -> None:
    earlier = after(after({}, declare({}, wanted())), declare({}, wanted("prices")))
    present = after(earlier, declare(earlier, wanted(max_retries=1)), 8)
    present = after(present, withdraw(present, "prices"), 9)
    present = after(present, declare(present, wanted("new")), 10)
    for payload in bring_back(present, earlier):
        present = after(present, payload, 11)
    assert {name: each.spec for name, each in present.items()} == {name: each.spec for name, each in earlier.items()}
    assert bring_back(present, earlier) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (wanted(".orders"), "subscription.name: .*no name"),
        (wanted("n" * 41), "subscription.name"),
        (wanted(sidecars=()), "needs 1 to 20 names"),
        (wanted(sidecars=("*shop",)), "neither a sidecar's name"),
        (wanted(topics=[]), "has topics, or a topicPattern"),
        (wanted(topic_pattern="o.*"), "has topics, or a topicPattern"),
        (wanted(topics=["no topic"]), "topics.0: 'no topic' is not the name of a topic"),
        (wanted(topics=[], topic_pattern="("), "topicPattern: .* no pattern"),
        (wanted(group="a b"), "group: String should match"),
        (wanted(path="orders"), "path: String should match"),
        (wanted(value_format="xml"), "valueFormat: 'xml' is not one of binary"),
        (wanted(max_retries=-1), "maxRetries: Input should be greater"),
        (wanted(max_batch_records=0), "maxBatchRecords: "),
        (wanted(rollback_threshold=101), "rollbackThreshold: "),
        (wanted(when_exhausted="never"), "whenExhausted: "),
        (wanted(on_unreadable="panic"), "onUnreadable: "),
        (wanted(group_protocol="streams"), "groupProtocol: "),
        (wanted(auto_offset_reset="now"), "autoOffsetReset: "),
        (wanted(filter="value.("), "filter: "),
        (wanted(routes=[subscriptions.SubscriptionRoute(when="1 +", path="/x")]), "routes: route 1: "),
        (wanted(routes=[subscriptions.SubscriptionRoute(when="true", path="x")]), "routes.0.path: "),
        (wanted(exactly_once=True, order_by_key=True), "exclude each other"),
        (wanted(group_instance_id="one"), "name one sidecar"),
        (wanted(filter=f"key == '{'k' * MOST_BYTES}'"), "bytes, and"),
        (wanted(group_instance_id="a\0b", sidecars=("shop",)), "zero byte"),
        (wanted(max_retries=-1, path="x"), "path: .*; maxRetries: "),
    ],
)
def test_bad_input_is_named_with_its_place(given: subscriptions.DeclaredSubscription, reason: str) -> None:
    with pytest.raises(InvalidField, match=reason):
        declare({}, given)


def test_no_sidecar_gets_more_than_it_can_run_and_others_do_not_count() -> None:
    known: Declared = {}
    for number in range(MOST_OF_SIDECAR):
        known = after(known, declare(known, wanted(f"a{number}", ("shop-*",))))
        known = after(known, declare(known, wanted(f"b{number}", ("till",))))
    with pytest.raises(NotAllowed, match="'shop-7' would have 101"):
        declare(known, wanted("more", ("shop-7",)))
    with pytest.raises(NotAllowed, match="would have 101"):
        declare(known, wanted("more", ("s*",)))
    assert declare(known, wanted("more", ("bakery",))) is not None
    assert declare(known, wanted("a7", ("shop-*",), max_retries=1)) is not None  # in place of itself
