"""Assembles the reactive consumer: its topics, its delivery, the writing of outcomes, its state over a restart."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import structlog

from services.sidecar.admin.health import BackendProbe
from services.sidecar.api.http_server import Server
from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.instance_values import InstanceId, InstanceOptions, Interest
from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.dead_letters.topics import LetterTopics
from services.sidecar.delivering.deliverer import Deliverer
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.delivering.routing import Route
from services.sidecar.reactive import kept_orders
from services.sidecar.reactive.at_least_once import PlainSettler
from services.sidecar.reactive.batch_processor import BatchProcessor, Unreadable
from services.sidecar.reactive.batch_sink import BatchSink
from services.sidecar.reactive.exactly_once import TransactionalSettler
from services.sidecar.reactive.options import Delivery, ReactiveOptions
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.settings import SidecarSettings
from services.sidecar.state.state_file import StateFile, StateWriter
from services.sidecar.wiring.delivering import delivery_policy
from services.sidecar.wiring.instance_recovery import InstanceRecovery
from services.sidecar.wiring.kafka_properties import client_properties, consumer_properties, transaction_properties
from services.sidecar.wiring.shared_parts import SharedParts

FILE = "reactive.json"
FETCH_WAIT_MS = 100
"""The time that a broker keeps a fetch without records.

The broker answers at once when a record comes. But a partition that continues after a rest waits for the open fetch at
its broker.
"""
READY_SECONDS = 1.0
"""How often the backend is asked at the start whether it is ready; the original's own pause."""

log = structlog.get_logger(__name__)


class ReactiveParts:
    """The reactive consumer of a sidecar, if its settings name one."""

    def __init__(self, shared: SharedParts, recovery: InstanceRecovery) -> None:
        self._settings = shared.settings
        self._shared = shared
        self._recovery = recovery
        self.consumer: ReactiveConsumer | None = None
        """There once it was started."""

    async def start(self, servers: Collection[Server], probe: BackendProbe | None) -> list[asyncio.Task[None]]:
        """Starts reading once these servers serve and the backend is well; its background tasks.

        Call `InstanceRecovery.restore` first.
        """
        if not self._settings.reads_by_itself:
            return []
        warn_of_settings(self._settings)
        file = self._recovery.file(FILE)
        self.consumer = self._made(await asyncio.to_thread(_found, file), file)
        self._recovery.take_in(self.consumer)
        return [self.consumer.start(partial(_ready, servers, probe))]

    async def stop(self, patience: float) -> None:
        """Stops the consumer. Open deliveries have `patience` seconds to end."""
        if self.consumer is not None:
            await self.consumer.close(patience)

    async def fault(self) -> str | None:
        """The reason why records do not reach the backend; None if they do, or if the consumer is off."""
        return None if self.consumer is None else await self.consumer.fault()

    def liveness_fault(self) -> str | None:
        """The problem that only a restart can cure; None if there is none."""
        return None if self.consumer is None else self.consumer.liveness_fault()

    def _made(self, found: kept_orders.KeptOrders, file: StateFile | None) -> ReactiveConsumer:
        settings, backend = self._settings, self._shared.backend
        options = reactive_options(settings)
        key_format, value_format = settings.instance_formats
        policy = delivery_policy(settings, has_dead_letters=settings.dead_letter_enabled)
        sink = BatchSink(backend, Deliverer(backend, policy, ReplyWriter(self._shared.serializer)))
        dead_letters = DeadLetters(options.id.group, settings.written_extension)
        makes_topics = settings.dead_letter_enabled and settings.dead_letter_create_topics
        topics = LetterTopics(client_properties(settings), settings.dead_letter_extension) if makes_topics else None
        settling: PlainSettler | TransactionalSettler = PlainSettler(
            self._shared.producer, dead_letters, topics, settings.reactive_topics
        )
        if options.exactly_once:
            id_ = settings.reactive_transactional_id or f"kafka-mesh-sidecar-{settings.name}.reactive"
            settling = TransactionalSettler(
                partial(transaction_properties, settings, id_),
                dead_letters,
                settings.transaction_timeout_ms / 1000,
                topics,
                reply_topics=settings.reactive_reply_topics,
                extension=settings.written_extension,
            )
        processor = BatchProcessor(
            options.id.group,
            RecordShower(key_format, value_format, self._shared.reader),
            settling.settle,
            self._shared.audit,
            Unreadable(settings.reactive_on_unreadable),
            self._shared.traffic,
        )
        return ReactiveConsumer(
            options,
            _client_properties(settings, options),
            processor,
            sink,
            settling,
            kept=found,
            keep=None if file is None else _keeping(file),
        )


def reactive_options(settings: SidecarSettings) -> ReactiveOptions:
    """The options of the reactive consumer in the settings."""
    key_format, value_format = settings.instance_formats
    reset = settings.auto_offset_reset
    return ReactiveOptions(
        InstanceId(settings.reactive_group, settings.reactive_name or settings.name),
        Interest(topics=settings.reactive_topics, pattern=settings.reactive_topic_pattern),
        Delivery(
            backend_url=settings.backend_url,
            backend_path=settings.backend_path,
            max_concurrency=settings.reactive_max_concurrency,
            order_by_key=settings.reactive_order_by_key,
            max_batch_records=settings.reactive_max_batch_records,
            max_batch_bytes=settings.batch_bytes_at_most,
            linger_ms=settings.reactive_linger_ms,
            filter=settings.reactive_filter,
            routes=tuple(Route(one.when, one.path) for one in settings.backend_routes),
        ),
        InstanceOptions(
            key_format=key_format,
            value_format=value_format,
            read_timeout=settings.request_timeout_ms / 1000,
            offset_reset="error" if reset == "none" else reset,
            group_instance_id=settings.reactive_group_instance_id,
            group_protocol=settings.reactive_group_protocol,
        ),
        max_held_records=settings.reactive_max_held_records,
        max_held_bytes=settings.reactive_max_held_bytes,
        commit_interval_seconds=settings.reactive_commit_interval_ms / 1000,
        commit_records=settings.reactive_commit_records,
        finish_seconds=settings.reactive_revoke_timeout_ms / 1000,
        exactly_once=settings.reactive_exactly_once,
        backend_hosts=frozenset(host.lower() for host in settings.backend_hosts),
    )


def _client_properties(settings: SidecarSettings, options: ReactiveOptions) -> dict[str, Any]:
    properties = instance_properties(
        {
            "partition.assignment.strategy": "cooperative-sticky",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **consumer_properties(settings),
        },
        options.id,
        options.instance,
    )
    if options.exactly_once:
        properties["isolation.level"] = "read_committed"
    return properties


def warn_of_settings(settings: SidecarSettings) -> None:
    """Warns of settings that the original advises against."""
    most = settings.batch_bytes_at_most
    given = {**settings.kafka_properties, **settings.consumer_properties}
    for name in ("fetch.max.bytes", "max.partition.fetch.bytes"):
        value = given[name].get_secret_value() if name in given else ""
        if value.isdecimal() and int(value) >= most:
            log.warning(
                f"{name} is not below request_max_bytes: what is fetched at a time becomes several batches; "
                "lower the one or raise the other",
                **{name: int(value), "request_max_bytes": most},
            )


async def _ready(servers: Collection[Server], probe: BackendProbe | None) -> None:
    """Returns when this sidecar serves, as its backend may call it at once, and the backend is well."""
    while not all(server.started for server in servers):
        await asyncio.sleep(0.02)
    is_told = False
    while probe is not None and (fault := await probe.fault()) is not None:
        if not is_told:
            log.info("the reactive consumer waits for its backend", reason=fault)
            is_told = True
        await asyncio.sleep(READY_SECONDS)


def _found(file: StateFile | None) -> kept_orders.KeptOrders:
    """The orders that the process before this one got. Blocks."""
    content = None if file is None else file.load()
    if file is None or content is None:
        return kept_orders.NOTHING_ORDERED
    try:
        return kept_orders.decoded(content)
    except kept_orders.BrokenStateError as error:
        file.set_aside(str(error))
        return kept_orders.NOTHING_ORDERED


def _keeping(file: StateFile) -> Callable[[kept_orders.KeptOrders], Awaitable[None]]:
    latest = kept_orders.NOTHING_ORDERED
    writer = StateWriter(file, lambda: kept_orders.encoded(latest))

    async def keep(now: kept_orders.KeptOrders) -> None:
        nonlocal latest
        latest = now
        await writer.written()

    return keep
