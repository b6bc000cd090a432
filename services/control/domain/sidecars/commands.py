"""The commands for a sidecar or a pipeline, and the checks of a command that need no call to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from mesh import durations
from mesh.instance_names import INSTANCES
from mesh.rpc import events
from services.control.domain.errors import InvalidField
from services.control.domain.open_and_ended import LAST_SECOND
from services.control.domain.sidecars.deliveries import check_delivery, check_mask
from services.control.domain.sidecars.instances import LONGEST_NAME, NUL, check_what_it_reads

SIDECARS = "members/"
"""The beginning of targets that are sidecars themselves."""
PIPELINES = "pipelines/"
"""The beginning of targets that are pipelines."""
OF_INSTANCES = ("pause", "resume", "seek", "drain", "remove", "configure")
OF_SIDECARS = ("set_log_levels", "get_log_levels", "check_health", "get_info")
OF_PIPELINES = ("accept_loss",)
JOBS = ("archive", "audit", "traffic")
READING = ("get_log_levels", "check_health", "get_info")
"""Commands that change nothing, so that a frozen mesh takes them, too."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_LOGGERS = 100
USUAL_DRAIN_MS = 30_000
LONGEST_DRAIN_MS = 600_000


def reads_only(command: events.SidecarCommand) -> bool:
    return command.WhichOneof("command") in READING


def checked(command: events.SidecarCommand, target: str) -> events.SidecarCommand:
    """The command with its defaults, so that the log holds the whole order. InvalidField when a field is wrong."""
    kind = command.WhichOneof("command")
    whom, possible = _listener(target)
    if kind is None:
        raise InvalidField("command", f"is required: one of {', '.join(possible)}")
    if kind not in possible:
        text = f"{kind} is nothing that {whom} can be told; {target!r} takes {', '.join(possible)}"
        raise InvalidField("command", text)
    said = events.SidecarCommand()
    said.CopyFrom(command)
    if kind in _CHECKS:
        _CHECKS[kind](getattr(said, kind))
    return said


def named(holder: str) -> str:
    """The member that carries an order out, for people: "sidecar 's1'", "pipeline 'p1'"."""
    if holder.startswith(PIPELINES):
        return f"pipeline {holder.removeprefix(PIPELINES)!r}"
    return f"sidecar {holder!r}"


def _listener(target: str) -> tuple[str, tuple[str, ...]]:
    """The kind of the target, and the commands that it takes."""
    if target.startswith(INSTANCES):
        return "an instance", OF_INSTANCES
    if target.startswith(PIPELINES):
        return "a pipeline", OF_PIPELINES
    return "a sidecar", OF_SIDECARS


def _check_seek(seek: events.SeekInstance) -> None:
    if len(seek.topic) > LONGEST_NAME or NUL in seek.topic:
        raise InvalidField("command.seek.topic", f"a topic has at most {LONGEST_NAME} characters")
    if seek.HasField("partition"):
        if not seek.topic:
            raise InvalidField("command.seek.topic", f"is required: partition {seek.partition} of which topic?")
        if seek.partition < 0:
            raise InvalidField("command.seek.partition", f"{seek.partition} is negative")
    match seek.WhichOneof("to"):
        case "offset":
            _check_offset(seek)
        case "time":
            check_time("command.seek.time", seek.time)
        case "first" | "last" as where:
            if not getattr(seek, where):
                raise InvalidField(f"command.seek.{where}", "is false, which says nothing; set it, or another one")
        case _:
            raise InvalidField("command.seek", "say where to go on: one of offset, time, first and last")


def _check_offset(seek: events.SeekInstance) -> None:
    if not seek.HasField("partition"):
        missing = "partition" if seek.topic else "topic"
        text = f"is required with an offset: offset {seek.offset} of which partition?"
        raise InvalidField(f"command.seek.{missing}", text)
    if seek.offset < 0:
        raise InvalidField("command.seek.offset", f"{seek.offset} is negative; first and last have fields of their own")


def check_time(field: str, time: Timestamp) -> None:
    """InvalidField for a time that no record can have."""
    if not is_time(time):
        raise InvalidField(field, "is no time between the years 1970 and 9999")


def is_time(time: Timestamp) -> bool:
    return 0 <= time.seconds <= LAST_SECOND and 0 <= time.nanos < 1_000_000_000


def _check_drain(drain: events.DrainInstance) -> None:
    timeout_ms = durations.whole_ms(drain.timeout)
    if not 0 <= timeout_ms <= LONGEST_DRAIN_MS:
        text = f"{timeout_ms} ms is not from 0 to {LONGEST_DRAIN_MS} ms; 0 means {USUAL_DRAIN_MS} ms"
        raise InvalidField("command.drain.timeout", text)
    drain.timeout.CopyFrom(durations.of_ms(timeout_ms or USUAL_DRAIN_MS))


def _check_configure(change: events.ConfigureInstance) -> None:
    where = "command.configure"
    check_what_it_reads(where, events.ConsumerInstance(topics=change.topics, topic_pattern=change.topic_pattern))
    paths = change.delivery_mask.paths
    check_mask(f"{where}.delivery_mask", paths)
    unnamed = [field.name for field, _ in change.delivery.ListFields() if field.name not in paths]
    if unnamed:
        raise InvalidField(f"{where}.delivery_mask", f"does not name {unnamed[0]}, which delivery sets")
    if not (change.topics or change.topic_pattern or paths):
        raise InvalidField(where, "changes nothing; say topics, topic_pattern, or a delivery with its delivery_mask")
    check_delivery(f"{where}.delivery", change.delivery, paths)


def _check_levels(wanted: events.SetLogLevels) -> None:
    if not 1 <= len(wanted.levels) <= MAX_LOGGERS:
        raise InvalidField(
            "command.set_log_levels.levels", f"needs 1 to {MAX_LOGGERS} loggers, got {len(wanted.levels)}"
        )
    for logger, level in sorted(wanted.levels.items()):
        field = f"command.set_log_levels.levels[{logger}]"
        if not 1 <= len(logger) <= LONGEST_NAME or NUL in logger:
            raise InvalidField("command.set_log_levels.levels", f"{logger!r} is no logger; ROOT is the one above all")
        if level not in LEVELS:
            raise InvalidField(field, f"{level!r} is not one of {', '.join(LEVELS)}")


def _check_accept_loss(accepted: events.AcceptLoss) -> None:
    if accepted.job not in JOBS:
        raise InvalidField("command.accept_loss.job", f"{accepted.job!r} is not one of {', '.join(JOBS)}")
    if not 1 <= len(accepted.topic) <= 2 * LONGEST_NAME or NUL in accepted.topic:
        raise InvalidField(
            "command.accept_loss.topic", "is required: TOPIC, or CLUSTER/TOPIC of a job that reads several clusters"
        )


_CHECKS: dict[str, Callable[[Any], None]] = {
    "seek": _check_seek,
    "drain": _check_drain,
    "configure": _check_configure,
    "set_log_levels": _check_levels,
    "accept_loss": _check_accept_loss,
}
