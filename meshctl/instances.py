"""Instances, sidecars and their orders as sentences and table cells. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from mesh import durations
from mesh.rpc import events, instances
from mesh.wording import word
from meshctl.output import moment

MOST_PARTITIONS = 10
"""Partitions named in one cell; further ones are only counted."""


def reads(instance: events.ConsumerInstance) -> str:
    """ "orders, returns", "topics that match o.*", "partitions orders/0, orders/1"."""
    if instance.topic_pattern:
        return f"topics that match {instance.topic_pattern}"
    if instance.assigned_partitions:
        named = [f"{each.topic}/{each.partition}" for each in instance.assigned_partitions[:MOST_PARTITIONS]]
        more = len(instance.assigned_partitions) - len(named)
        return f"partitions {', '.join(named)}{f' and {more} more' if more else ''}"
    return ", ".join(instance.topics) or "nothing yet"


def state(instance: events.ConsumerInstance, status: instances.InstanceStatus | None) -> str:
    """ "reading", "paused"; if its sidecar has reported no state, the state that an operator set."""
    if status is not None and status.state:
        return word(instances.InstanceState, status.state)
    if instance.drained:
        return "drained"
    return "paused" if instance.paused else "not heard of"


def lag(status: instances.InstanceStatus | None) -> int | None:
    """The lag of all partitions together; None where that is not known."""
    if status is None or not status.partitions or any(each.lag < 0 for each in status.partitions):
        return None
    return sum(each.lag for each in status.partitions)


def known(number: int | None) -> str:
    """ "-" for -1 and None: the number is not known."""
    return "-" if number is None or number < 0 else str(number)


def facts(instance: events.ConsumerInstance) -> Iterator[tuple[str, str]]:
    """The properties of an instance, as names and texts."""
    yield "kind", word(events.InstanceKind, instance.kind or events.INSTANCE_KIND_ACTIVE)
    yield "sidecar", instance.sidecar
    yield "reads", reads(instance)
    yield "formats", f"keys {instance.key_format or '-'}, values {instance.value_format or '-'}"
    if instance.HasField("delivery"):
        yield from _delivery(instance.delivery)
    begins = instance.offset_reset and f"begins at {instance.offset_reset} without a commit"
    commits = "commits by itself" if instance.auto_commit else "is committed by its backend"
    yield "offsets", ", ".join(part for part in (begins, commits) if part)
    static = instance.group_instance_id and f"static member {instance.group_instance_id}"
    yield "group", ", ".join(part for part in (instance.group, instance.group_protocol, static) if part)
    yield "since", moment(instance.create_time)


def _delivery(delivery: events.DeliverySettings) -> Iterator[tuple[str, str]]:
    """How a reactive consumer delivers."""
    yield "backend", delivery.backend_url + delivery.backend_path
    order = "for each key" if delivery.order_by_key else "for each partition"
    yield "parallel", f"{delivery.max_concurrency} batches, in order {order}"
    limits = f"{delivery.max_batch_records} records, {delivery.max_batch_bytes} bytes, {delivery.linger_ms} ms"
    yield "batches", f"at most {limits}"
    if delivery.filter:
        yield "filter", delivery.filter
    for route in delivery.routes:
        yield "route", f"{route.when} -> {route.path}"


def command(of: events.SidecarCommand) -> str:
    """ "pause", "seek orders/0 to offset 5", "log mesh at DEBUG"."""
    kind = of.WhichOneof("command") or ""
    tell = _COMMANDS.get(kind)
    return "a command that this meshctl does not know" if tell is None else tell(getattr(of, kind))


def result(order: events.SidecarOrder) -> str:
    """ "open", "done", "failed", "expired"."""
    if not order.HasField("outcome"):
        return "open"
    return word(events.OrderResult, order.outcome.result)


def target(name: str) -> str:
    """ "billing.one", "sidecar s1", "pipeline p1"."""
    collection, _, identifier = name.partition("/")
    return f"{_HOLDERS[collection]} {identifier}" if collection in _HOLDERS else identifier


def holder(order: events.SidecarOrder) -> str:
    """The member that carries an order out: "sidecar s1", "pipeline p1"."""
    return target(order.sidecar) if order.sidecar.startswith("pipelines/") else f"sidecar {order.sidecar}"


def event(of: events.Event) -> str:
    """The decision about an instance or a sidecar, as a sentence; empty for events about something else."""
    match of.WhichOneof("payload"):
        case "consumer_instance_registered":
            instance = of.consumer_instance_registered.instance
            states = [name for name in ("paused", "drained") if getattr(instance, name)]
            state_ = f", {' and '.join(states)}" if states else ""
            return f"consumer {target(instance.name)} on {instance.sidecar} reads {reads(instance)}{state_}"
        case "consumer_instance_removed":
            removed = of.consumer_instance_removed
            return f"consumer {target(removed.name)} removed: {removed.cause}"
        case "sidecar_ordered":
            order = of.sidecar_ordered.order
            return f"{target(order.target)} is ordered: {command(order.command)} ({_short(order.name)})"
        case "sidecar_order_ended":
            ended = of.sidecar_order_ended
            order = events.SidecarOrder(outcome=ended.outcome)
            why = f": {ended.outcome.description}" if ended.outcome.description else ""
            return f"{target(of.stream)}: order {_short(ended.name)} {result(order)}{why}"
        case "sidecar_order_handed_over":
            handed = of.sidecar_order_handed_over
            return f"{target(of.stream)}: order {_short(handed.name)} goes with the consumer to {handed.sidecar}"
        case _:
            return ""


def details(order: events.SidecarOrder) -> list[tuple[str, str]]:
    """The JSON details of an outcome, as names and texts; nested values have a dotted name."""
    try:
        said = json.loads(order.outcome.details_json or "null")
    except ValueError:
        return [("details", order.outcome.details_json)]
    return list(_flat("", said))


def _flat(path: str, said: Any) -> Iterator[tuple[str, str]]:
    match said:
        case dict():
            for name, each in said.items():
                yield from _flat(f"{path}.{name}" if path else str(name), each)
        case list() if any(isinstance(each, dict | list) for each in said):
            for place, each in enumerate(said):
                yield from _flat(f"{path}[{place}]", each)
        case list():
            yield path, ", ".join(map(_text, said))
        case None if not path:
            return
        case _:
            yield path or "details", _text(said)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _seek(seek: events.SeekInstance) -> str:
    match seek.WhichOneof("to"):
        case "offset":
            place = f"offset {seek.offset}"
        case "time":
            place = f"the first record since {moment(seek.time)}"
        case "first":
            place = "the first record"
        case _:
            place = "the end"
    where = f"{seek.topic}/{seek.partition}" if seek.HasField("partition") else seek.topic
    return f"seek {where or 'all'} to {place}"


def _configure(change: events.ConfigureInstance) -> str:
    changes = []
    if change.topics or change.topic_pattern:
        changes.append(
            f"read {reads(events.ConsumerInstance(topics=change.topics, topic_pattern=change.topic_pattern))}"
        )
    changes += [f"{path} = {setting(change.delivery, path)}" for path in change.delivery_mask.paths]
    return f"configure: {', '.join(changes)}"


def setting(delivery: events.DeliverySettings, field: str) -> str:
    """ "100", "true", "headers.kind == 'order' -> /orders"."""
    if field == "routes":
        return "; ".join(f"{route.when} -> {route.path}" for route in delivery.routes) or "empty"
    value = getattr(delivery, field)
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def _short(name: str) -> str:
    return name.removeprefix("orders/")


_HOLDERS = {"members": "sidecar", "pipelines": "pipeline"}
_COMMANDS: dict[str, Callable[[Any], str]] = {
    "pause": lambda _: "pause",
    "resume": lambda _: "resume",
    "seek": _seek,
    "drain": lambda drain: f"drain within {durations.in_s(drain.timeout):g} s",
    "remove": lambda _: "remove",
    "configure": _configure,
    "set_log_levels": lambda said: f"log {', '.join(f'{name} at {said.levels[name]}' for name in sorted(said.levels))}",
    "get_log_levels": lambda _: "tell its log levels",
    "check_health": lambda _: "tell its health",
    "get_info": lambda _: "tell what it is",
    "accept_loss": lambda loss: f"go on in {loss.topic} without what job {loss.job} has lost of it",
}
