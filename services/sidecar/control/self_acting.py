"""Consumers that read by themselves, in the words that control and sidecars share (`mesh.v1`)."""

from collections.abc import Callable
from typing import Protocol

from mesh.rpc import events
from services.sidecar.consuming.instance_values import InstanceId, InstanceStatus, Interest, Standing
from services.sidecar.reactive.options import Delivery, ReactiveOptions


class SelfActing(Protocol):
    """A reactive consumer as control sees it."""

    on_change: Callable[[], None]
    """Called when the consumer has changed."""

    @property
    def id(self) -> InstanceId: ...

    @property
    def options(self) -> ReactiveOptions: ...

    @property
    def interest(self) -> Interest: ...

    @property
    def delivery(self) -> Delivery: ...

    @property
    def standing(self) -> Standing: ...

    async def status(self) -> InstanceStatus: ...


def self_acting_message(consumer: SelfActing, name: str, sidecar: str) -> events.ConsumerInstance:
    """The reactive consumer as control's message."""
    options, interest, delivery = consumer.options.instance, consumer.interest, consumer.delivery
    return events.ConsumerInstance(
        name=name,
        group=consumer.id.group,
        instance_id=consumer.id.instance,
        sidecar=sidecar,
        topics=interest.topics,
        topic_pattern=interest.pattern,
        key_format=options.key_format.label,
        value_format=options.value_format.label,
        offset_reset="none" if options.offset_reset == "error" else options.offset_reset,
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
