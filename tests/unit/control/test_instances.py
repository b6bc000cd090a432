"""What control takes of an instance that a sidecar tells of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mesh import durations
from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.sidecars.instances import MAX_INSTANCES, READ_FORMATS, name_of, registered


def instance(**fields: Any) -> events.ConsumerInstance:
    """billing's one on s1, unless said otherwise."""
    return events.ConsumerInstance(**{"group": "billing", "instance_id": "one", "sidecar": "s1", **fields})


def known(of: events.ConsumerInstance) -> dict[str, events.ConsumerInstance]:
    event = registered({}, of)
    assert event is not None
    return {event.instance.name: event.instance}


def partition(topic: str, number: int) -> events.AssignedPartition:
    return events.AssignedPartition(topic=topic, partition=number)


FULL = {
    "topic_pattern": "orders-.*",
    "offset_reset": "earliest",
    "auto_commit": True,
    "min_bytes": -1,
    "request_wait": durations.of_s(1),
    "group_instance_id": "static-1",
    "group_protocol": "consumer",
    "paused": True,
    "drained": True,
}


def test_everything_that_a_sidecar_says_is_kept_and_named() -> None:
    [kept] = known(instance(**FULL)).values()
    assert kept.name == "instances/billing.one"
    assert {field: getattr(kept, field) for field in FULL} == FULL
    assert kept.HasField("create_time")


def test_one_that_is_told_again_makes_no_event_and_one_that_changed_does() -> None:
    before = known(instance(topics=["orders"]))
    assert registered(before, instance(topics=["orders"])) is None
    paused = registered(before, instance(topics=["orders"], paused=True))
    assert paused is not None
    assert paused.instance.create_time == before["instances/billing.one"].create_time


def test_the_last_sidecar_that_tells_of_it_holds_it() -> None:
    taken_over = registered(known(instance()), instance(sidecar="s2"))
    assert taken_over is not None
    assert taken_over.instance.sidecar == "s2"


@pytest.mark.parametrize("format_", READ_FORMATS)
def test_all_six_formats_are_known(format_: str) -> None:
    assert known(instance(key_format=format_, value_format=format_))


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"group": ""}, "instance.group"),
        ({"group": "g" * 256}, "instance.group"),
        ({"instance_id": "a\0b"}, "instance.instance_id"),
        ({"sidecar": ""}, "instance.sidecar"),
        ({"key_format": "JSON"}, "instance.key_format"),
        ({"value_format": "xml"}, "instance.value_format"),
        ({"offset_reset": "first"}, "instance.offset_reset"),
        ({"group_protocol": "share"}, "instance.group_protocol"),
        ({"group_instance_id": "i" * 256}, "instance.group_instance_id"),
        ({"min_bytes": -2}, "instance.min_bytes"),
        ({"request_wait": timedelta(milliseconds=-1)}, "instance.request_wait"),
        ({"topics": ["orders", ""]}, "instance.topics[1]"),
        ({"topics": ["t"] * 1001}, "instance.topics"),
        ({"topic_pattern": "x" * 4001}, "instance.topic_pattern"),
        ({"assigned_partitions": [partition("orders", -1)]}, "instance.assigned_partitions[0].partition"),
        ({"assigned_partitions": [partition("", 0)]}, "instance.assigned_partitions[0].topic"),
        ({"topics": ["orders"], "topic_pattern": "o.*"}, "instance.topic_pattern"),
        ({"topics": ["orders"], "assigned_partitions": [partition("orders", 0)]}, "instance.assigned_partitions"),
    ],
)
def test_what_can_not_be_is_refused_by_its_field(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidField) as refused:
        registered({}, instance(**fields))
    assert refused.value.field == place


def test_two_instances_do_not_share_a_name() -> None:
    three = (("a.b", "c"), ("a", "b.c"), ("a", "b%2Ec"))
    names = [name_of(instance(group=group, instance_id=id_)) for group, id_ in three]
    assert names == ["instances/a.b.c", "instances/a.b%2Ec", "instances/a.b%252Ec"]


def test_the_number_of_instances_is_bounded() -> None:
    full = {f"instances/g.{number}": instance() for number in range(MAX_INSTANCES)}
    with pytest.raises(NotAllowed, match="100000 instances"):
        registered(full, instance())
