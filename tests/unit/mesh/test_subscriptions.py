"""The contract of subscriptions: control and the sidecar's settings take the same ones."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from mesh import subscriptions
from mesh.rpc import subscriptions as rpc
from mesh.subscriptions import AUTO, FORMATS, Subscription, SubscriptionError, check, of_spec
from services.sidecar.consuming.instance_values import GroupProtocol
from services.sidecar.delivering.policy import WhenExhausted
from services.sidecar.formats import Format
from services.sidecar.settings import SidecarSettings

BORDERS: dict[str, list[Any]] = {
    "group": ["g", "", "a b", "g" * 200, "g" * 201],
    "group_protocol": ["classic", "consumer", "streams"],
    "filter": ["", "value.n > 1", "value.("],
    "key_format": ["json", "JSON", "auto", "xml", 5, 6],
    "value_format": ["binary", "string", "text", 0, -1],
    "auto_offset_reset": ["earliest", "latest", "none", "now"],
    "path": ["/", "/a b", "a"],
    "routes": [
        [{"when": "true", "path": "/x"}],
        [{"when": "1 +", "path": "/x"}],
        [{"when": "true", "path": "/x"}] * 101,
    ],
    "content": ["records", "cloudevents", "text"],
    "headers_as": ["map", "list", "set"],
    "timeout_ms": [1, 0],
    "max_concurrency": [1, 0, 1_000, 1_001],
    "max_batch_records": [1, 0, 100_000, 100_001],
    "max_batch_bytes": [1, 0, 64 * 1024 * 1024, 64 * 1024 * 1024 + 1],
    "linger_ms": [0, -1, 60_000, 60_001],
    "max_retries": [0, -1, 1_000_000, 1_000_001],
    "retry_delay_ms": [0, -1],
    "max_retry_delay_ms": [0, -1],
    "rollback_threshold": [0, -1, 100, 101],
    "when_exhausted": ["dead_letter", "drop", "retry", "panic"],
    "on_unreadable": ["dead_letter", "skip", "stop"],
    "order_by_key": [True, False],
    "exactly_once": [True, False],
    "reply_topics": [["replies"], ["no topic"]],
    "topics": [["orders"], ["."], ["o" * 249], ["o" * 250]],
    "group_instance_id": ["static"],
}


def is_taken(check_: Any, *arguments: Any) -> bool:
    try:
        check_(*arguments)
    except SubscriptionError:
        return False
    return True


@pytest.mark.parametrize(
    ("member", "value"), [(member, value) for member, values in BORDERS.items() for value in values]
)
def test_control_takes_what_the_settings_of_a_sidecar_take(member: str, value: Any) -> None:
    one = Subscription.model_validate({"name": "one", "topics": ["orders"], member: value})
    assert is_taken(check, one) == is_taken(SidecarSettings(name="shop").of, one)


def test_each_member_has_its_borders_above_and_its_field_in_the_contract_with_control() -> None:
    members = Subscription.model_fields.keys() - {"name"}
    assert BORDERS.keys() == members - {"topic_pattern"}
    assert {field.name for field in rpc.SubscriptionSpec.DESCRIPTOR.fields} == members


def test_words_are_those_of_the_sidecar() -> None:
    assert [Format.parse(number).label for number in range(len(FORMATS))] == list(FORMATS)
    assert {each.label for each in Format} == {*FORMATS, AUTO}
    bounds = subscriptions._BOUNDS
    assert set(get_args(bounds["when_exhausted"])) == {each.value for each in WhenExhausted}
    assert set(get_args(bounds["group_protocol"])) == {each.value for each in GroupProtocol}


def test_a_message_is_read_with_the_members_that_it_sets_and_no_others() -> None:
    spec = rpc.SubscriptionSpec(
        topics=["orders"],
        linger_ms=0,
        exactly_once=False,
        routes=[rpc.SubscriptionRoute(when="true", path="/x")],
        reply_topics=["replies"],
    )
    one = of_spec("one", spec)
    assert one.model_fields_set == {"name", "topics", "linger_ms", "exactly_once", "routes", "reply_topics"}
    assert (one.linger_ms, one.exactly_once, one.reply_topics) == (0, False, ("replies",))
