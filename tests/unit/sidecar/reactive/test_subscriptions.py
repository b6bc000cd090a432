"""Subscriptions: those of the settings, and those that a backend declares."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from mesh.subscriptions import SubscriptionError
from services.sidecar.delivering.policy import WhenExhausted
from services.sidecar.formats import Format
from services.sidecar.reactive.subscriptions import MOST, declared
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.delivering import delivery_policy
from services.sidecar.wiring.reactive import reactive_options

ORDERS: dict[str, Any] = {"name": "orders", "topics": ["orders"], "group": "shop", "path": "/orders"}
PRICES: dict[str, Any] = {"name": "prices", "topicPattern": "prices.*"}


def settings(**given: object) -> SidecarSettings:
    return SidecarSettings.model_validate({"name": "shop-1", **given})


def of(subscription: dict[str, Any], **given: object) -> SidecarSettings:
    """The settings that hold for one subscription."""
    read = declared(json.dumps([subscription]).encode())
    return settings(**given).with_subscriptions(read)[subscription["name"]]


def test_a_subscription_has_what_it_names_and_all_else_as_the_settings_say() -> None:
    named = {
        **ORDERS,
        "valueFormat": "auto",
        "maxRetries": 7,
        "whenExhausted": "drop",
        "maxBatchRecords": 5,
        "filter": "value.n > 1",
        "routes": [{"when": "key == 'x'", "path": "/x"}],
    }
    found = of(named, backend_url="http://localhost:9000", backend_path="/all", reactive_linger_ms=9)
    options = reactive_options(found)
    assert (options.id.group, options.id.instance) == ("shop", "shop-1-orders")
    assert options.interest.topics == ("orders",)
    assert (options.delivery.backend_url, options.delivery.backend_path) == ("http://localhost:9000", "/orders")
    assert (options.delivery.max_batch_records, options.delivery.linger_ms) == (5, 9)
    assert (options.delivery.filter, options.delivery.routes[0].path) == ("value.n > 1", "/x")
    assert found.instance_formats == (Format.STRING, Format.AUTO)
    policy = delivery_policy(found, has_dead_letters=True)
    assert (policy.max_retries, policy.when_exhausted) == (7, WhenExhausted.DROP)


def test_what_is_the_single_consumers_own_is_not_a_subscriptions() -> None:
    found = of(
        PRICES,
        reactive_topics="apples",
        reactive_group_instance_id="static",
        reactive_transactional_id="id",
        reactive_name="push",
    )
    assert (found.reactive_topics, found.reactive_topic_pattern) == ((), "prices.*")
    assert found.reactive_group_instance_id == ""
    assert (found.reactive_name, found.reactive_transactional_id) == ("shop-1-prices", "id.prices")


def test_the_settings_of_one_consumer_are_a_subscription_without_a_name() -> None:
    given = settings(reactive_topics="apples", subscriptions=[ORDERS])
    assert given.reads_by_itself
    assert list(given.with_subscriptions(given.subscriptions)) == ["", "orders"]
    assert settings(subscriptions=[ORDERS]).reads_by_itself
    assert settings(subscriptions_from_backend=True).reads_by_itself
    assert not settings(subscriptions=[ORDERS], reactive_enabled=False).reads_by_itself


def test_a_sidecar_with_the_longest_name_has_room_for_the_subscriptions() -> None:
    names = [of({**ORDERS, "name": "n" * 40}, name=letter * 63).reactive_name for letter in "ab"]
    assert [len(name) for name in names] == [63, 63]
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([{**ORDERS, "topics": []}], "has topics, or a topicPattern"),
        ([{**ORDERS, "topicPattern": "o.*"}], "has topics, or a topicPattern"),
        ([{**ORDERS, "topics": ["no topic"]}], "'orders': reactive: 'no topic' is not the name of a topic"),
        ([{**ORDERS, "path": "orders"}], "'orders': path: String should match"),
        ([{**ORDERS, "maxRetries": -1}], "'orders': maxRetries: Input should be greater"),
        ([{**ORDERS, "valueFormat": "xml"}], "'orders': valueFormat: "),
        ([{**ORDERS, "valueFormat": "avro"}], "schema_registry_url"),
        ([{**ORDERS, "exactlyOnce": True, "orderByKey": True}], "exclude each other"),
        ([{**ORDERS, "speed": 1}], "speed"),
        ([ORDERS, {**ORDERS, "group": "other"}], "two subscriptions have the name 'orders'"),
        ([ORDERS, {**ORDERS, "name": "again"}], "read orders in one group, shop"),
        ([ORDERS, {"name": "all", "topicPattern": "o.*", "group": "shop"}], "read orders in one group, shop"),
    ],
)
def test_a_wrong_subscription_is_named_with_its_reason(given: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        settings(subscriptions=given)


def test_the_settings_own_topics_count_too() -> None:
    with pytest.raises(ValidationError, match="the subscription of the settings and subscription 'orders' read orders"):
        settings(reactive_topics="orders", reactive_group="shop", subscriptions=[ORDERS])


def test_a_backend_declares_in_the_words_of_the_settings() -> None:
    one, other = declared(json.dumps([ORDERS, PRICES]).encode())
    assert (one.name, one.topics, one.path) == ("orders", ("orders",), "/orders")
    assert other.topic_pattern == "prices.*"
    assert declared(b"[]") == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>", "not JSON"),
        (b'{"topics":["orders"]}', "has to be an array"),
        (json.dumps([ORDERS] * (MOST + 1)).encode(), "at most"),
        (json.dumps([ORDERS, {"topics": ["x"]}, {**PRICES, "max_retries": "many"}]).encode(), "/1/name: .*; /2/max"),
    ],
)
def test_a_declaration_that_cannot_be_read_says_where(content: bytes, reason: str) -> None:
    with pytest.raises(SubscriptionError, match=reason):
        declared(content)
