"""Assembles reactive consumers: their topics, delivery, the writing of outcomes, their state over a restart."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaException

from mesh.http_server import Server
from services.sidecar.admin.health import BackendProbe
from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.instance_values import InstanceId, InstanceOptions
from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.dead_letters.topics import LetterTopics
from services.sidecar.delivering.deliverer import Deliverer
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.delivering.routing import Route
from services.sidecar.faults import Fault
from services.sidecar.reactive import kept_orders
from services.sidecar.reactive.at_least_once import PlainSettler
from services.sidecar.reactive.batch_processor import BatchProcessor, Unreadable
from services.sidecar.reactive.batch_sink import BatchSink
from services.sidecar.reactive.exactly_once import TransactionalSettler
from services.sidecar.reactive.options import Delivery, ReactiveOptions
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.reactive.subscriptions import Source, shown
from services.sidecar.settings import SidecarSettings
from services.sidecar.state.state_file import StateFile, StateWriter
from services.sidecar.wiring.delivering import delivery_policy
from services.sidecar.wiring.instance_recovery import InstanceRecovery
from services.sidecar.wiring.kafka_properties import client_properties, consumer_properties, transaction_properties
from services.sidecar.wiring.shared_parts import SharedParts
from services.sidecar.wiring.subscriptions import Subscribed, Subscriptions

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
    """The reactive consumers of a sidecar: one for each subscription."""

    def __init__(self, shared: SharedParts, recovery: InstanceRecovery) -> None:
        self._settings = shared.settings
        self._shared = shared
        self._recovery = recovery
        self._following: asyncio.Task[None] | None = None
        self._lives: dict[Subscribed, asyncio.Task[None]] = {}
        """The tasks of the consumers that may come and go."""
        self._closing: set[asyncio.Task[None]] = set()
        self.subscriptions = Subscriptions(shared, recovery.declared)

    @property
    def consumers(self) -> list[ReactiveConsumer]:
        """The consumers that were started."""
        return [one.consumer for one in self.subscriptions if one.consumer is not None]

    async def start(self, servers: Collection[Server], probe: BackendProbe | None) -> list[asyncio.Task[None]]:
        """Starts reading once these servers serve and the backend is well; its background tasks.

        Call `InstanceRecovery.restore` first.
        """
        settings = self._settings
        ready = partial(_ready, servers, probe)
        tasks = []
        if settings.reads_by_itself:
            mine = [one for one in self.subscriptions if one.source is Source.SETTINGS]
            tasks = [await self._begun(one, ready) for one in mine]
        if not self.subscriptions.are_declared and not settings.takes_subscriptions:
            self._recovery.all_taken_in()
            return tasks
        self._following = asyncio.create_task(self._follow(ready), name="subscriptions")
        return [*tasks, self._following]

    async def stop(self, patience: float) -> None:
        """Stops the consumers. Open deliveries have `patience` seconds to end."""
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(*(one.close(patience) for one in self.consumers), *self._closing)

    async def fault(self) -> str | None:
        """The reason why records do not reach the backend; None if they do, or if there is no consumer."""
        if self.subscriptions.problem:
            return self.subscriptions.problem
        for one in self.subscriptions:
            if one.source is Source.CONTROL:  # an order to many sidecars must not make all of them unready
                continue
            if one.consumer is not None and (fault := await one.consumer.fault()) is not None:
                return f"{shown(one.name)}: {fault}" if one.name else fault
        return None

    def liveness_fault(self) -> str | None:
        """The problem that only a restart can cure; None if there is none."""
        return next(filter(None, (one.liveness_fault() for one in self.consumers)), None)

    async def _follow(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Runs the subscriptions that control and the backend declare, for ever."""
        await ready()
        asking = asyncio.create_task(self.subscriptions.ask_repeatedly()) if self.subscriptions.are_declared else None
        try:
            while True:
                changed = self.subscriptions.changed
                changed.clear()
                await self._apply(ready)
                if self.subscriptions.is_answered:
                    self._recovery.all_taken_in()
                await self._next_change(changed, asking)
        finally:
            if asking is not None:
                asking.cancel()

    async def _next_change(self, changed: asyncio.Event, asking: asyncio.Task[None] | None) -> None:
        """Returns at the next change. If a task fails meanwhile, the sidecar fails, as with those of the settings."""
        waiting = asyncio.create_task(changed.wait())
        watched = {*self._lives.values(), *([] if asking is None else [asking])}
        try:
            while not waiting.done():
                done, _ = await asyncio.wait({waiting, *watched}, return_when=asyncio.FIRST_COMPLETED)
                for task in watched & done:
                    watched.remove(task)
                    if not self._recovery.instances.is_superseded:
                        task.result()
        finally:
            waiting.cancel()

    async def _apply(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Ends the consumers of subscriptions that are no more, or are other ones, and begins new ones."""
        if self._recovery.instances.is_superseded:
            return
        going = self.subscriptions.settle()
        names = {one.name for one in self.subscriptions}
        await asyncio.gather(*(self._end(one, forget=one.name not in names) for one in going))
        for one in list(self.subscriptions):
            if one.consumer is None:
                await self._begin(one, ready)
        self.subscriptions.count()
        self._recovery.report_soon()

    async def _begin(self, one: Subscribed, ready: Callable[[], Awaitable[None]]) -> None:
        try:
            self._lives[one] = await self._begun(one, ready)
        except (Fault, ValueError, OSError, KafkaException) as refused:
            if one.source is not Source.CONTROL:
                raise
            self.subscriptions.refuse(one, str(refused))
            await one.target.backend.close()

    async def _end(self, one: Subscribed, *, forget: bool) -> None:
        """Ends a subscription in order: what is on its way ends and is committed. `forget`: orders about it, too."""
        closing = asyncio.create_task(self._ended(one, forget=forget), name=f"end of subscription {one.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.shield(closing)

    async def _ended(self, one: Subscribed, *, forget: bool) -> None:
        self._lives.pop(one, None)
        if one.consumer is not None:
            await one.consumer.close(self._settings.drain_timeout_ms / 1000)
            self._recovery.take_out(one.consumer)
            log.info("a subscription has ended", subscription=one.name, source=one.source.value)
        await one.target.backend.close()
        self.subscriptions.ended(one)
        if forget and (file := self._recovery.file(_file(one))) is not None:
            with contextlib.suppress(OSError):  # then orders about a later subscription of this name begin with these
                await asyncio.to_thread(file.path.unlink, missing_ok=True)

    async def _begun(self, subscribed: Subscribed, ready: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        warn_of_settings(subscribed.settings)
        file = self._recovery.file(_file(subscribed))
        consumer = subscribed.consumer = self._made(subscribed, await asyncio.to_thread(_found, file), file)
        self._recovery.take_in(consumer)
        named = {"subscription": subscribed.name} if subscribed.name else {}
        with structlog.contextvars.bound_contextvars(**named):
            return consumer.start(ready)

    def _made(self, subscribed: Subscribed, found: kept_orders.KeptOrders, file: StateFile | None) -> ReactiveConsumer:
        settings, backend = subscribed.settings, subscribed.target
        options = reactive_options(settings)
        policy = delivery_policy(settings, has_dead_letters=settings.dead_letter_enabled)
        sink = BatchSink(backend, Deliverer(backend, policy, ReplyWriter(self._shared.serializer)))
        dead_letters = DeadLetters(options.id.group, settings.written_extension)
        makes_topics = settings.dead_letter_enabled and settings.dead_letter_create_topics
        topics = LetterTopics(client_properties(settings), settings.dead_letter_extension) if makes_topics else None
        settling: PlainSettler | TransactionalSettler = PlainSettler(
            self._shared.producer, dead_letters, topics, settings.reactive_topics
        )
        if options.exactly_once:
            settling = TransactionalSettler(
                partial(transaction_properties, settings, _transactional_id(subscribed)),
                dead_letters,
                settings.transaction_timeout_ms / 1000,
                topics,
                reply_topics=settings.reactive_reply_topics,
                extension=settings.written_extension,
            )
        processor = BatchProcessor(
            options.id.group,
            subscribed.shower,
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
            name=subscribed.name,
            kept=found,
            keep=None if file is None else _keeping(file),
        )


def _file(subscribed: Subscribed) -> str:
    return f"reactive.{subscribed.name}.json" if subscribed.name else FILE


def _transactional_id(subscribed: Subscribed) -> str:
    settings = subscribed.settings
    usual = f"kafka-mesh-sidecar-{settings.name}.reactive"
    return settings.reactive_transactional_id or (f"{usual}.{subscribed.name}" if subscribed.name else usual)


def reactive_options(settings: SidecarSettings) -> ReactiveOptions:
    """The options of the reactive consumer in the settings."""
    key_format, value_format = settings.instance_formats
    reset = settings.auto_offset_reset
    return ReactiveOptions(
        InstanceId(settings.reactive_group, settings.reactive_name or settings.name),
        settings.reactive_interest,
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
