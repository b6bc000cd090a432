"""The consumer instance aggregate: a sidecar tells of an instance that it holds."""

from __future__ import annotations

from datetime import UTC, datetime

from mesh.rpc import events
from services.control.domain.errors import InvalidField

FORMATS = ("binary", "json", "string")
LONGEST_NAME = 255
MAX_TOPICS = 1000


def registered(
    known: events.ConsumerInstance | None, wanted: events.ConsumerInstance
) -> events.ConsumerInstanceRegistered | None:
    """An instance that is new, or that changed; None when it is known just like this.

    The last sidecar that tells of it holds it: a backend comes back through another one after a crash.
    """
    for field, value in (("group", wanted.group), ("instance_id", wanted.instance_id), ("sidecar", wanted.sidecar)):
        if not 1 <= len(value) <= LONGEST_NAME:
            raise InvalidField(f"instance.{field}", f"needs 1 to {LONGEST_NAME} characters, got {len(value)}")
    for field, value in (("key_format", wanted.key_format), ("value_format", wanted.value_format)):
        if value not in ("", *FORMATS):
            raise InvalidField(f"instance.{field}", f"{value!r} is not one of {', '.join(FORMATS)}")
    if len(wanted.topics) > MAX_TOPICS:
        raise InvalidField("instance.topics", f"{len(wanted.topics)} topics are more than {MAX_TOPICS}")
    instance = events.ConsumerInstance()
    instance.CopyFrom(wanted)
    instance.name = f"instances/{wanted.group}.{wanted.instance_id}"
    if known is not None:
        instance.create_time.CopyFrom(known.create_time)
    else:
        instance.create_time.FromDatetime(datetime.now(UTC))
    return None if instance == known else events.ConsumerInstanceRegistered(instance=instance)


def removed(name: str, cause: str) -> events.ConsumerInstanceRemoved:
    return events.ConsumerInstanceRemoved(name=name, cause=cause)
