"""The reports of sidecars about their instances, and the orders for sidecars, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from mesh import durations
from mesh.instance_names import INSTANCES
from mesh.rpc import events
from services.control.domain.sidecars.commands import PIPELINES, SIDECARS

MOST_PARTITIONS = 10
"""Partitions that one sentence names; of further partitions it says only the number."""


def instance_registered(event: events.Event) -> Iterator[str]:
    instance = event.consumer_instance_registered.instance
    states = [state for state in ("paused", "drained") if getattr(instance, state)]
    state = f", {' and '.join(states)}" if states else ""
    yield f"consumer {instance.name.removeprefix(INSTANCES)} on {instance.sidecar} reads {_reads(instance)}{state}"


def instance_removed(event: events.Event) -> Iterator[str]:
    removed = event.consumer_instance_removed
    yield f"consumer {removed.name.removeprefix(INSTANCES)} removed: {removed.cause}"


def ordered(event: events.Event) -> Iterator[str]:
    order = event.sidecar_ordered.order
    kind = order.command.WhichOneof("command") or ""
    tell = _COMMANDS.get(kind)
    what = "is told something that this release does not know" if tell is None else tell(getattr(order.command, kind))
    part_of = f" for replay {order.replay.removeprefix('replays/')}" if order.replay else ""
    yield f"{_target(order.target)} {what}{part_of} (order {_order(order.name)})"


def order_ended(event: events.Event) -> Iterator[str]:
    ended = event.sidecar_order_ended
    result = _RESULTS.get(ended.outcome.result, "ended in a way that this release does not know")
    by = f" by {ended.sidecar.removeprefix(PIPELINES)}" if ended.sidecar else ""
    why = f": {ended.outcome.description}" if ended.outcome.description else ""
    yield f"{_target(event.stream)}: order {_order(ended.name)} {result}{by}{why}"


def order_handed_over(event: events.Event) -> Iterator[str]:
    handed = event.sidecar_order_handed_over
    yield f"{_target(event.stream)}: order {_order(handed.name)} goes with the consumer to {handed.sidecar}"


def moment_text(time: Timestamp) -> str:
    return time.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _reads(instance: events.ConsumerInstance) -> str:
    if instance.topic_pattern:
        return f"topics that match {instance.topic_pattern}"
    if instance.assigned_partitions:
        named = [f"{each.topic}/{each.partition}" for each in instance.assigned_partitions[:MOST_PARTITIONS]]
        more = len(instance.assigned_partitions) - len(named)
        return f"partitions {', '.join(named)}{f' and {more} more' if more else ''}"
    return ", ".join(instance.topics) or "nothing yet"


def _target(name: str) -> str:
    """ "consumer billing.one", "sidecar s1", "pipeline p1"."""
    if name.startswith(PIPELINES):
        return f"pipeline {name.removeprefix(PIPELINES)}"
    if name.startswith(SIDECARS):
        return f"sidecar {name.removeprefix(SIDECARS)}"
    return f"consumer {name.removeprefix(INSTANCES)}"


def _order(name: str) -> str:
    return name.removeprefix("orders/")


def _seek(seek: events.SeekInstance) -> str:
    where = f"{seek.topic}/{seek.partition}" if seek.HasField("partition") else seek.topic
    match seek.WhichOneof("to"):
        case "offset":
            place = f"offset {seek.offset}"
        case "time":
            place = f"the first record since {moment_text(seek.time)}"
        case "first":
            place = "the first record"
        case _:
            place = "the end"
    return f"is to go on at {place}{f' of {where}' if where else ''}"


def _configure(change: events.ConfigureInstance) -> str:
    reads = events.ConsumerInstance(topics=change.topics, topic_pattern=change.topic_pattern)
    changes = [f"read {_reads(reads)}"] if change.topics or change.topic_pattern else []
    changes += [f"have {path} {_setting(change.delivery, path)}" for path in change.delivery_mask.paths]
    return f"is to {', '.join(changes)}"


def _setting(delivery: events.DeliverySettings, field: str) -> str:
    if field == "routes":
        return "; ".join(f"{route.when} -> {route.path}" for route in delivery.routes) or "empty"
    value = getattr(delivery, field)
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def _levels(wanted: events.SetLogLevels) -> str:
    return f"is to log {', '.join(f'{logger} at {level}' for logger, level in sorted(wanted.levels.items()))}"


_COMMANDS: dict[str, Callable[[Any], str]] = {
    "pause": lambda _: "is to pause",
    "resume": lambda _: "is to resume",
    "seek": _seek,
    "drain": lambda drain: f"is to drain within {durations.in_s(drain.timeout):g} s",
    "remove": lambda _: "is to be removed",
    "configure": _configure,
    "set_log_levels": _levels,
    "get_log_levels": lambda _: "is asked for its log levels",
    "check_health": lambda _: "is asked for its health",
    "get_info": lambda _: "is asked what it is",
    "accept_loss": lambda loss: f"is to go on in {loss.topic} without what job {loss.job} has lost of it",
}
_RESULTS = {
    events.ORDER_RESULT_DONE: "done",
    events.ORDER_RESULT_FAILED: "failed",
    events.ORDER_RESULT_EXPIRED: "expired",
}
