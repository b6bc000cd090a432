"""The consumer instance aggregate: a sidecar reports an instance that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from mesh import durations
from mesh.instance_names import instance_name
from mesh.rpc import events
from mesh.subscriptions import AUTO, FORMATS
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.sidecars.deliveries import FIELDS, check_delivery

READ_FORMATS = (*FORMATS, AUTO)
OFFSET_RESETS = ("earliest", "latest", "none")
GROUP_PROTOCOLS = ("classic", "consumer")
LONGEST_NAME = 255
LONGEST_PATTERN = 4_000
MAX_TOPICS = 1000
MAX_PARTITIONS = 10_000
MAX_INSTANCES = 100_000
"""Instances of all sidecars; control holds each of them in memory."""
NUL = "\0"
"""No name has a zero byte, and PostgreSQL takes no text with one."""

Instances = Mapping[str, events.ConsumerInstance]
"""instances/{group}.{instance} -> the instance."""


def registered(known: Instances, wanted: events.ConsumerInstance) -> events.ConsumerInstanceRegistered | None:
    """An instance that is new, or that changed; None when control knows exactly this instance.

    The last sidecar that reports an instance holds it: after a crash, a backend comes back through another sidecar.
    """
    _check(wanted)
    instance = events.ConsumerInstance()
    instance.CopyFrom(wanted)
    instance.name = name_of(wanted)
    before = known.get(instance.name)
    if before is not None:
        instance.create_time.CopyFrom(before.create_time)
    elif len(known) >= MAX_INSTANCES:
        raise NotAllowed(
            "TOO_MANY_INSTANCES", instance.name, f"control knows {len(known)} instances, and no more are possible"
        )
    else:
        instance.create_time.FromDatetime(datetime.now(UTC))
    return None if instance == before else events.ConsumerInstanceRegistered(instance=instance)


def removed(name: str, cause: str) -> events.ConsumerInstanceRemoved:
    return events.ConsumerInstanceRemoved(name=name, cause=cause.replace(NUL, ""))


def name_of(instance: events.ConsumerInstance) -> str:
    """The resource name of an instance."""
    return instance_name(instance.group, instance.instance_id)


def _check(instance: events.ConsumerInstance) -> None:
    for field in ("group", "instance_id", "sidecar"):
        _check_text(f"instance.{field}", getattr(instance, field), LONGEST_NAME)
    _check_one_of(instance, "key_format", READ_FORMATS)
    _check_one_of(instance, "value_format", READ_FORMATS)
    _check_one_of(instance, "offset_reset", OFFSET_RESETS)
    _check_one_of(instance, "group_protocol", GROUP_PROTOCOLS)
    if instance.group_instance_id:
        _check_text("instance.group_instance_id", instance.group_instance_id, LONGEST_NAME)
    if instance.min_bytes < -1:
        raise InvalidField(
            "instance.min_bytes", f"{instance.min_bytes} is below -1, which means: as soon as there is something"
        )
    if (wait_ms := durations.whole_ms(instance.request_wait)) < 0:
        raise InvalidField("instance.request_wait", f"{wait_ms} ms is negative; 0 means: at once")
    if instance.HasField("delivery"):
        check_delivery("instance.delivery", instance.delivery, FIELDS)
    check_what_it_reads("instance", instance)


def check_what_it_reads(where: str, instance: events.ConsumerInstance) -> None:
    """InvalidField unless the instance reads in one way, by valid names; its fields are below `where`."""
    ways = [field for field in ("topics", "topic_pattern", "assigned_partitions") if getattr(instance, field)]
    if len(ways) > 1:
        raise InvalidField(f"{where}.{ways[1]}", f"stands beside {ways[0]}; an instance reads by one of them")
    for field, most in (("topics", MAX_TOPICS), ("assigned_partitions", MAX_PARTITIONS)):
        number = len(getattr(instance, field))
        if number > most:
            raise InvalidField(f"{where}.{field}", f"{number} are more than {most}")
    for place, topic in enumerate(instance.topics):
        _check_text(f"{where}.topics[{place}]", topic, LONGEST_NAME)
    if instance.topic_pattern:
        _check_text(f"{where}.topic_pattern", instance.topic_pattern, LONGEST_PATTERN)
    for place, each in enumerate(instance.assigned_partitions):
        _check_text(f"{where}.assigned_partitions[{place}].topic", each.topic, LONGEST_NAME)
        if each.partition < 0:
            raise InvalidField(f"{where}.assigned_partitions[{place}].partition", f"{each.partition} is negative")


def _check_text(field: str, text: str, longest: int) -> None:
    if not 1 <= len(text) <= longest or NUL in text:
        raise InvalidField(field, f"needs 1 to {longest} characters, none of them a zero byte; got {len(text)}")


def _check_one_of(instance: events.ConsumerInstance, field: str, possible: tuple[str, ...]) -> None:
    """Refuses an unknown value. For an empty value, the sidecar's own default applies."""
    said = getattr(instance, field)
    if said not in ("", *possible):
        raise InvalidField(f"instance.{field}", f"{said!r} is not one of {', '.join(possible)}")
