"""Checks of a replay that need no call to a cluster: its ranges, its filter, its destination."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.instance_names import INSTANCES
from mesh.rpc import replays
from mesh.rpc.dead_letters import REASONS
from services.control.domain.errors import InvalidField
from services.control.domain.replays.copies import check_copy, check_profile
from services.control.domain.replays.names import check_name, check_topic
from services.control.domain.sidecars.commands import check_time
from services.control.domain.sidecars.instances import LONGEST_NAME, NUL

MAX_RANGES = 1000
MAX_SEEKS = 20
"""Ranges of one seek: each range is an order to the instance."""
MAX_FILTERED = 10_000
"""The most reasons, keys or offsets of one filter, of each kind; they are in the log."""
FASTEST = 10_000_000.0
"""Records a second; more than any destination takes."""
LONGEST_PATH = 2_000
LARGEST_PARTITION, LARGEST_OFFSET = 2**31 - 1, 2**63 - 1
DESTINATIONS = tuple(each.name for each in replays.ReplaySpec.DESCRIPTOR.oneofs_by_name["destination"].fields)
OF_CONTROL = ("seek", "group")
"""Destinations that control serves itself."""
OF_PIPELINES = ("topic", "profile")
"""Destinations that need a pipeline: copies, and profiles of records."""


def is_of_control(spec: replays.ReplaySpec) -> bool:
    return spec.WhichOneof("destination") in OF_CONTROL


def is_of_pipelines(spec: replays.ReplaySpec) -> bool:
    return spec.WhichOneof("destination") in OF_PIPELINES


def checked(spec: replays.ReplaySpec, identifier: str) -> replays.ReplaySpec:
    """The replay with its defaults, so that the log holds the whole request. InvalidField when a field is wrong."""
    destination = spec.WhichOneof("destination")
    if destination is None:
        raise InvalidField("spec.destination", f"is required: one of {', '.join(DESTINATIONS)}")
    most = MAX_SEEKS if destination == "seek" else MAX_RANGES
    if not 1 <= len(spec.ranges) <= most:
        raise InvalidField("spec.ranges", f"needs 1 to {most} ranges, got {len(spec.ranges)}: which records?")
    for place, each in enumerate(spec.ranges):
        _check_range(f"spec.ranges[{place}]", each, destination)
    _check_overlaps(spec)
    if not 0 <= spec.rate <= FASTEST or not math.isfinite(spec.rate):
        raise InvalidField("spec.rate", f"{spec.rate:g} is not from 0 to {FASTEST:g} records a second; 0: no limit")
    _check_dead_letters(spec, destination)
    said = replays.ReplaySpec()
    said.CopyFrom(spec)
    if not said.filter.ByteSize():
        said.ClearField("filter")
    if destination in _CHECKS:
        _CHECKS[destination](said, identifier)
    return said


def _check_range(where: str, asked: replays.ReplayRange, destination: str) -> None:
    if not (asked.topic == "" and destination == "seek"):
        check_topic(f"{where}.topic", asked.topic)
    if asked.HasField("partition"):
        if not asked.topic:
            raise InvalidField(f"{where}.topic", f"is required: partition {asked.partition} of which topic?")
        if asked.partition < 0:
            raise InvalidField(f"{where}.partition", f"{asked.partition} is negative")
    start, end = asked.WhichOneof("start"), asked.WhichOneof("end")
    for field in (start, end):
        if field is not None:
            _check_place(where, field, asked)
    if destination in OF_CONTROL:
        if end is not None:
            text = f"is nothing that a {destination} has: it goes on at the start, and reads what comes"
            raise InvalidField(f"{where}.{end}", text)
    elif start == "start_at_end":
        raise InvalidField(f"{where}.start_at_end", "nothing lies behind the end; only a seek or a group begins there")
    _check_order(where, asked)


def _check_place(where: str, field: str, asked: replays.ReplayRange) -> None:
    value = getattr(asked, field)
    match value:
        case bool():
            if not value:
                raise InvalidField(f"{where}.{field}", "is false, which says nothing; set it, or another one")
        case int():
            if not asked.HasField("partition"):
                raise InvalidField(
                    f"{where}.partition", f"is required with {field}: offset {value} of which partition?"
                )
            if value < 0:
                raise InvalidField(f"{where}.{field}", f"{value} is negative")
        case Timestamp():
            check_time(f"{where}.{field}", value)


def _check_order(where: str, asked: replays.ReplayRange) -> None:
    match asked.WhichOneof("start"), asked.WhichOneof("end"):
        case "start_offset", "end_offset" if asked.start_offset >= asked.end_offset:
            text = f"{asked.end_offset} is not behind start_offset {asked.start_offset}; it is exclusive"
            raise InvalidField(f"{where}.end_offset", text)
        case None, "end_offset" if asked.end_offset == 0:
            raise InvalidField(f"{where}.end_offset", "0 leaves nothing: it is exclusive")
        case "start_time", "end_time" if asked.start_time.ToNanoseconds() >= asked.end_time.ToNanoseconds():
            raise InvalidField(f"{where}.end_time", "is not later than start_time; it is exclusive")


def _check_overlaps(spec: replays.ReplaySpec) -> None:
    """Refuses two ranges for one partition: they would be two positions of one consumer."""
    seen: dict[str, set[int | None]] = {}
    for place, each in enumerate(spec.ranges):
        partition = each.partition if each.HasField("partition") else None
        before = seen.setdefault(each.topic, set())
        if partition in before or None in before or (partition is None and before):
            which = f"topic {each.topic!r}" if each.topic else "the instance"
            which += "" if partition is None else f" partition {partition}"
            raise InvalidField(
                f"spec.ranges[{place}]", f"{which} stands in a range before; one range for each partition"
            )
        before.add(partition)
    if "" in seen and len(spec.ranges) > 1:
        raise InvalidField("spec.ranges", "one without a topic is about all of them, and stands alone")


def _check_dead_letters(spec: replays.ReplaySpec, destination: str) -> None:
    if destination == "source" and not spec.dead_letters and not spec.source.topic:
        raise InvalidField("spec.dead_letters", "only they know where they came from: set it, or source.topic")
    if destination in OF_CONTROL and (spec.dead_letters or spec.rate):
        field = "dead_letters" if spec.dead_letters else "rate"
        raise InvalidField(f"spec.{field}", f"is nothing that a {destination} has: its consumers read as they do")
    if destination in OF_PIPELINES and spec.dead_letters:
        text = "are found by sidecars, which know their extension; name their topic itself in the ranges"
        raise InvalidField("spec.dead_letters", text)
    if not spec.filter.ByteSize():
        return
    if destination in OF_CONTROL or not spec.dead_letters:
        instead = "; what of other records is copied, topic.filter says" if destination == "topic" else ""
        raise InvalidField("spec.filter", f"is about dead letters; set dead_letters, or leave it out{instead}")
    for field in ("reasons", "keys", "offsets"):
        number = len(getattr(spec.filter, field))
        if number > MAX_FILTERED:
            raise InvalidField(f"spec.filter.{field}", f"{number} are more than {MAX_FILTERED}; make several replays")
    for reason in spec.filter.reasons:
        if reason not in REASONS:
            raise InvalidField("spec.filter.reasons", f"{reason!r} is not one of {', '.join(REASONS)}")
    if any(NUL in key for key in spec.filter.keys):
        raise InvalidField("spec.filter.keys", "no key in the log has a zero byte; say which offsets instead")
    _check_offsets(spec)


def _check_offsets(spec: replays.ReplaySpec) -> None:
    if not spec.filter.offsets:
        return
    if len({(each.topic, each.partition) for each in spec.ranges if each.HasField("partition")}) != 1:
        raise InvalidField("spec.filter.offsets", "are those of one partition: name one, in one range")
    negative = next((offset for offset in spec.filter.offsets if offset < 0), None)
    if negative is not None:
        raise InvalidField("spec.filter.offsets", f"{negative} is negative")


def _check_backend(spec: replays.ReplaySpec, identifier: str) -> None:
    backend = spec.backend
    check_name("spec.backend.sidecar", backend.sidecar)
    check_name("spec.backend.group", backend.group)
    if backend.path and (not backend.path.startswith("/") or len(backend.path) > LONGEST_PATH or NUL in backend.path):
        raise InvalidField("spec.backend.path", f"{backend.path[:LONGEST_NAME]!r} is no path: it begins with /")
    backend.group = backend.group or f"replay-{identifier}"


def _check_source(spec: replays.ReplaySpec, identifier: str) -> None:
    check_name("spec.source.sidecar", spec.source.sidecar)
    check_name("spec.source.group", spec.source.group)
    if spec.source.topic:
        check_topic("spec.source.topic", spec.source.topic)
    spec.source.group = spec.source.group or f"replay-{identifier}"


def _check_seek(spec: replays.ReplaySpec, _identifier: str) -> None:
    if not spec.seek.instance.removeprefix(INSTANCES) or not spec.seek.instance.startswith(INSTANCES):
        raise InvalidField("spec.seek.instance", f"{spec.seek.instance!r} is not of the form instances/GROUP.INSTANCE")


def _check_group(spec: replays.ReplaySpec, _identifier: str) -> None:
    if not spec.group.group:
        raise InvalidField("spec.group.group", "is required: which group?")
    check_name("spec.group.group", spec.group.group)


_CHECKS: dict[str, Callable[[replays.ReplaySpec, str], None]] = {
    "backend": _check_backend,
    "source": _check_source,
    "seek": _check_seek,
    "group": _check_group,
    "topic": check_copy,
    "profile": check_profile,
}


def check_partitions(partitions: Iterable[replays.ReplayPartition]) -> None:
    """Checks the partitions that a member reports; InvalidField for a wrong number or topic."""
    for place, each in enumerate(partitions):
        where = f"partitions[{place}]"
        check_topic(f"{where}.topic", each.topic)
        for field in ("partition", "start_offset", "end_offset", "position", "records", "failed", "planned"):
            if getattr(each, field) < 0:
                raise InvalidField(f"{where}.{field}", f"{getattr(each, field)} is negative")
