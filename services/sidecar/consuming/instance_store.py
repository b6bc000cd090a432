"""Consumer instances as they stand in the state file, and as a start finds them again.

The file holds the properties of instances, never a record and never an offset: Kafka has the offsets, by the group's
commits. For each instance the file notes whether control knows its present state. It also lists ended instances whose
end control does not know. So a start knows whether the file or control is newer (`found_again`): another machine may
have had this sidecar's name meanwhile.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

import orjson
import structlog

from services.sidecar.consuming.instance_values import (
    NOTHING,
    EndCause,
    GroupProtocol,
    HeaderShape,
    InstanceId,
    InstanceOptions,
    Interest,
    Standing,
)
from services.sidecar.formats import Format
from services.sidecar.records import Partition

VERSION = 1
MAX_ENDED = 1_000
"""Ended instances whose end control does not know; beyond this number the oldest are forgotten."""

log = structlog.get_logger(__name__)


class BrokenStateError(Exception):
    """The state cannot be read; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class KeptInstance:
    """The properties that an instance keeps across a restart."""

    id: InstanceId
    options: InstanceOptions
    interest: Interest = NOTHING
    standing: Standing = Standing.GIVING
    idle_seconds: float = 0.0
    """The time since the last use of the instance.

    Time without a running sidecar does not count: nobody could use the instance then.
    """


@dataclass(slots=True)
class Ledger:
    """The ledger of what control knows about this sidecar's instances."""

    told: set[InstanceId] = field(default_factory=set)
    """Instances whose present state control knows."""
    ended: dict[InstanceId, EndCause] = field(default_factory=dict)
    """Instances whose end control does not know."""

    def changed(self, id_: InstanceId) -> None:
        """Notes that the instance is new or has changed."""
        self.told.discard(id_)
        self.ended.pop(id_, None)

    def end(self, id_: InstanceId, cause: EndCause) -> None:
        """Notes the end of the instance."""
        self.told.discard(id_)
        self.ended[id_] = cause
        while len(self.ended) > MAX_ENDED:
            self.ended.pop(next(iter(self.ended)))


@dataclass(frozen=True, slots=True)
class KeptState:
    """All of a sidecar's instances."""

    instances: tuple[KeptInstance, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, slots=True)
class KnownToControl:
    """Control's answer, at a start, about the instances of this sidecar."""

    held: tuple[KeptInstance, ...] = ()
    """The instances that this sidecar holds, in the state that control heard last."""
    elsewhere: frozenset[InstanceId] = frozenset()
    """Instances of the file that another running sidecar holds: the backend went there meanwhile."""


class Source(Enum):
    """The source that knew an instance."""

    FILE = "file"
    CONTROL = "control"


def found_again(file: KeptState | None, control: KnownToControl | None) -> list[tuple[KeptInstance, Source]]:
    """The instances that a start brings back, each with the source that knew it. Either source may be missing.

    If only the file has an instance, the instance was made while control was away, or control has forgotten it. The
    start brings such an instance back, unless its backend uses it through another sidecar. If only control has an
    instance, another process of this name made it. The start brings such an instance back, unless the file knows that
    it ended. If file and control differ, control is right if it had heard the state that is in the file: then another
    process has changed the instance since.
    """
    file, control = file or KeptState(), control or KnownToControl()
    by_control = {each.id: each for each in control.held}
    found = []
    for kept in file.instances:
        told = by_control.pop(kept.id, None)
        if kept.id in control.elsewhere:
            log.info("another sidecar holds the instance by now", group=kept.id.group, instance=kept.id.instance)
        elif told is not None and kept.id in file.ledger.told and _differ(kept, told):
            found.append((told, Source.CONTROL))
        else:
            found.append((kept, Source.FILE))
    found += [(told, Source.CONTROL) for told in by_control.values() if told.id not in file.ledger.ended]
    return found


def encoded(instances: Collection[KeptInstance], ledger: Ledger) -> bytes:
    """As the file holds it: JSON that people can read."""
    return orjson.dumps(
        {
            "version": VERSION,
            "instances": [{**_instance_members(each), "told": each.id in ledger.told} for each in instances],
            "ended": [{**_id_members(id_), "cause": cause.name} for id_, cause in ledger.ended.items()],
        },
        option=orjson.OPT_INDENT_2,
    )


def decoded(content: bytes) -> KeptState:
    """The inverse of `encoded`.

    BrokenStateError if the content is no such state. If this release cannot read an instance, the log names it, and the
    others come back.
    """
    try:
        state = orjson.loads(content)
        version, given, ended = state["version"], list(state["instances"]), list(state["ended"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BrokenStateError(f"not the instances of a sidecar ({error!r})") from None
    if version != VERSION:
        raise BrokenStateError(f"its version is {version!r}, this release knows {VERSION}")
    instances, ledger = [], Ledger()
    for members in given:
        try:
            kept = _instance(members)
            told = bool(members["told"])
        except (KeyError, TypeError, ValueError) as error:
            log.error("an instance in the state file is not understood", instance=str(members), reason=repr(error))
            continue
        instances.append(kept)
        if told:
            ledger.told.add(kept.id)
    for members in ended:
        try:
            ledger.ended[_id(members)] = EndCause[members["cause"]]
        except (KeyError, TypeError):
            continue  # control hears later that nobody uses it
    return KeptState(tuple(instances), ledger)


_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "key_format": Format.parse,
    "value_format": Format.parse,
    "headers": HeaderShape,
    "group_protocol": GroupProtocol,
}
"""Options that are no plain values, each with how it is read."""


def _differ(kept: KeptInstance, told: KeptInstance) -> bool:
    """Whether the two differ in interest or standing.

    Control does not know all options, so options are not compared.
    """
    return (kept.interest, kept.standing) != (told.interest, told.standing)


def _id_members(id_: InstanceId) -> dict[str, str]:
    return {"group": id_.group, "instance": id_.instance}


def _id(members: Mapping[str, Any]) -> InstanceId:
    return InstanceId(str(members["group"]), str(members["instance"]))


def _instance_members(kept: KeptInstance) -> dict[str, Any]:
    return {
        **_id_members(kept.id),
        "options": {each.name: _plain(getattr(kept.options, each.name)) for each in fields(kept.options)},
        "topics": kept.interest.topics,
        "pattern": kept.interest.pattern,
        "partitions": [[one.topic, one.partition] for one in kept.interest.partitions],
        "standing": kept.standing.value,
        "idleSeconds": round(kept.idle_seconds, 3),
    }


def _instance(members: Mapping[str, Any]) -> KeptInstance:
    options = members["options"]
    known = {each.name for each in fields(InstanceOptions)}
    if unknown := options.keys() - known:
        log.warning("options of a kept instance are not known to this release", options=sorted(unknown))
    return KeptInstance(
        id=_id(members),
        options=InstanceOptions(
            **{name: _OPTIONS.get(name, lambda plain: plain)(given) for name, given in options.items() if name in known}
        ),
        interest=Interest(
            topics=tuple(map(str, members["topics"])),
            pattern=str(members["pattern"]),
            partitions=tuple(Partition(str(topic), int(partition)) for topic, partition in members["partitions"]),
        ),
        standing=Standing(members["standing"]),
        idle_seconds=max(float(members["idleSeconds"]), 0.0),
    )


def _plain(value: object) -> object:
    match value:
        case Format():
            return value.label
        case Enum():
            return value.value
        case _:
            return value
