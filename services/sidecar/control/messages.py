"""Instances and reactive consumers in the words that control and sidecars share (`mesh.v1`), and back."""

from typing import Any

from mesh import durations
from mesh.instance_names import instance_name
from mesh.rpc import events, instances
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_store import KeptInstance
from services.sidecar.consuming.instance_values import (
    GroupProtocol,
    InstanceId,
    InstanceOptions,
    InstanceState,
    InstanceStatus,
    Interest,
    Standing,
)
from services.sidecar.consuming.positions import AtOffset, AtTime, Edge, Place, SeekTarget
from services.sidecar.delivering.routing import Route
from services.sidecar.formats import Format
from services.sidecar.reactive.options import Change
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.records import Partition

_STATES = {
    InstanceState.IDLE: instances.INSTANCE_STATE_IDLE,
    InstanceState.JOINING: instances.INSTANCE_STATE_JOINING,
    InstanceState.READING: instances.INSTANCE_STATE_READING,
    InstanceState.PAUSED: instances.INSTANCE_STATE_PAUSED,
    InstanceState.DRAINING: instances.INSTANCE_STATE_DRAINING,
    InstanceState.DRAINED: instances.INSTANCE_STATE_DRAINED,
}
_NONE, _LIBRDKAFKAS_NONE = "none", "error"
"""The offset reset of a group that must not guess a start offset without a commit: control's word, and the client's."""


def resource_name(id_: InstanceId) -> str:
    """Control's name of an instance."""
    return instance_name(id_.group, id_.instance)


def instance_message(instance: ConsumerInstance, sidecar: str) -> events.ConsumerInstance:
    """The instance as control's message."""
    options, interest = instance.options, instance.interest
    return events.ConsumerInstance(
        name=resource_name(instance.id),
        group=instance.id.group,
        instance_id=instance.id.instance,
        sidecar=sidecar,
        topics=interest.topics,
        topic_pattern=interest.pattern,
        assigned_partitions=[
            events.AssignedPartition(topic=one.topic, partition=one.partition) for one in interest.partitions
        ],
        key_format=options.key_format.label,
        value_format=options.value_format.label,
        offset_reset=_NONE if options.offset_reset == _LIBRDKAFKAS_NONE else options.offset_reset,
        auto_commit=options.auto_commit,
        min_bytes=options.min_bytes,
        request_wait=durations.of_ms(round(options.read_timeout * 1000)),
        group_instance_id=options.group_instance_id,
        group_protocol=options.group_protocol.value,
        paused=instance.standing is Standing.PAUSED,
        drained=instance.standing is Standing.DRAINED,
    )


def reactive_message(consumer: ReactiveConsumer, sidecar: str) -> events.ConsumerInstance:
    """The reactive consumer as control's message."""
    options, interest, delivery = consumer.options.instance, consumer.interest, consumer.delivery
    return events.ConsumerInstance(
        name=resource_name(consumer.id),
        group=consumer.id.group,
        instance_id=consumer.id.instance,
        sidecar=sidecar,
        topics=interest.topics,
        topic_pattern=interest.pattern,
        key_format=options.key_format.label,
        value_format=options.value_format.label,
        offset_reset=_NONE if options.offset_reset == _LIBRDKAFKAS_NONE else options.offset_reset,
        group_instance_id=options.group_instance_id,
        group_protocol=options.group_protocol.value,
        paused=consumer.standing is Standing.PAUSED,
        drained=consumer.standing is Standing.DRAINED,
        kind=events.INSTANCE_KIND_REACTIVE,
        delivery=events.DeliverySettings(
            backend_url=delivery.backend_url,
            backend_path=delivery.backend_path,
            max_concurrency=delivery.max_concurrency,
            order_by_key=delivery.order_by_key,
            max_batch_records=delivery.max_batch_records,
            max_batch_bytes=delivery.max_batch_bytes,
            linger_ms=delivery.linger_ms,
            filter=delivery.filter,
            routes=[events.DeliveryRoute(when=one.when, path=one.path) for one in delivery.routes],
        ),
    )


def kept_instance(message: events.ConsumerInstance) -> KeptInstance:
    """The inverse of `instance_message`, as far as control knows the instance.

    ValueError if this release does not know a part.
    """
    reset = message.offset_reset or "earliest"
    return KeptInstance(
        InstanceId(message.group, message.instance_id),
        InstanceOptions(
            key_format=Format.parse(message.key_format or Format.STRING),
            value_format=Format.parse(message.value_format or Format.JSON),
            read_timeout=durations.whole_ms(message.request_wait) / 1000,
            min_bytes=message.min_bytes,
            offset_reset=_LIBRDKAFKAS_NONE if reset == _NONE else reset,
            auto_commit=message.auto_commit,
            group_instance_id=message.group_instance_id,
            group_protocol=GroupProtocol(message.group_protocol or GroupProtocol.CLASSIC.value),
        ),
        Interest(
            topics=tuple(message.topics),
            pattern=message.topic_pattern,
            partitions=tuple(Partition(one.topic, one.partition) for one in message.assigned_partitions),
        ),
        Standing.DRAINED if message.drained else Standing.PAUSED if message.paused else Standing.GIVING,
    )


def status_message(id_: InstanceId, status: InstanceStatus) -> instances.InstanceStatus:
    """How the instance does."""
    message = instances.InstanceStatus(
        name=resource_name(id_),
        state=_STATES[status.state],
        partitions=[
            instances.InstancePartition(
                topic=one.partition.topic,
                partition=one.partition.partition,
                position=one.position,
                committed=one.committed,
                lag=one.lag,
            )
            for one in status.partitions
        ],
        problem=status.problem,
    )
    message.last_use_time.FromMilliseconds(round(status.last_used_at * 1000))
    return message


def seek_target(order: events.SeekInstance) -> SeekTarget:
    """The place at which an operator wants an instance to continue."""
    return SeekTarget(_place(order), order.topic, order.partition if order.HasField("partition") else None)


def change_of(order: events.ConfigureInstance) -> Change:
    """The changes that an operator orders for a reactive consumer."""
    delivery: dict[str, Any] = {}
    for field in order.delivery_mask.paths:
        value = getattr(order.delivery, field)
        delivery[field] = tuple(Route(one.when, one.path) for one in value) if field == "routes" else value
    return Change(tuple(order.topics), order.topic_pattern, delivery)


def _place(order: events.SeekInstance) -> Place:
    match order.WhichOneof("to"):
        case "offset":
            return AtOffset(order.offset)
        case "time":
            return AtTime(order.time.ToMilliseconds())
        case "last":
            return Edge.LAST
        case _:
            return Edge.FIRST
