"""Keeps control informed of this sidecar and its instances, without ever delaying the backend.

The link compares the present state with the state that control has confirmed, and reports the difference. So nothing
has to be queued while control is down, and a control that comes back gets everything again. Each call has a time-out;
failed calls are repeated with growing pauses.

When a process first hears control, control may know instances that the process does not: another process of its name
made them, on another machine. The link brings these instances here (`known_to_control`). After that, an instance that
is not here has ended.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import grpc
import structlog

from mesh import VERSION, durations
from mesh.pauses import pause
from mesh.rpc import admin, events, instances
from mesh.rpc.cancellation import heed_cancellation
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_store import KeptInstance, KnownToControl, Source
from services.sidecar.consuming.instance_values import EndCause, InstanceId, InstanceStatus
from services.sidecar.consuming.instances import STATUS_SECONDS, Instances
from services.sidecar.control.connection import Connection
from services.sidecar.control.declared_subscriptions import DeclaredSubscriptions
from services.sidecar.control.messages import (
    instance_message,
    kept_instance,
    reactive_message,
    resource_name,
    status_message,
)
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.telemetry import metrics

BEAT_SECONDS = 3.0
LONGEST_BEAT_SECONDS = 10.0
"""Control may ask for fewer beats. Control takes a sidecar for gone that is silent for 15 s."""
FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
RETRY_SECONDS = 0.2
"""How soon a start asks control again that did not answer."""

log = structlog.get_logger(__name__)


class ControlLink:
    """The background task that talks to control. `changed` wakes it when something happens to instances."""

    def __init__(
        self,
        connection: Connection,
        instances_: Instances,
        declared: DeclaredSubscriptions,
        *,
        listen: str,
        superseded: Callable[[str], Awaitable[None]],
    ) -> None:
        """The link calls `superseded`, with the reason, if there is a younger process of this sidecar's name."""
        self._connection = connection
        self._instances = instances_
        self._declared = declared
        self._superseded = superseded
        self._member = admin.Member(
            name=f"members/{connection.sidecar}", kind=admin.MEMBER_KIND_SIDECAR, version=VERSION, address=listen
        )
        self._reactive: list[ReactiveConsumer] = []
        self._has_all_reactive = False
        self._ended: set[str] = set()
        """Names of reactive consumers that have ended, and that control may still know."""
        self._confirmed: dict[str, bytes] = {}
        self._was_heard = False
        self._wake = asyncio.Event()

    def take_in(self, consumer: ReactiveConsumer) -> None:
        """Adds a reactive consumer, which control sees as long as this process runs."""
        self._reactive.append(consumer)
        consumer.on_change = self.changed
        self.changed()

    def take_out(self, consumer: ReactiveConsumer) -> None:
        """A reactive consumer has ended, and control shall forget it."""
        self._reactive.remove(consumer)
        self._ended.add(resource_name(consumer.id))
        self.changed()

    def all_taken_in(self) -> None:
        """All reactive consumers of this process are known; control may hold others of an elder process."""
        self._has_all_reactive = True
        self.changed()

    def changed(self) -> None:
        """An instance is new, not as it was, or no more."""
        self._wake.set()

    async def known_to_control(
        self, of_file: Sequence[InstanceId], patience: float, *, insist: bool
    ) -> KnownToControl | None:
        """Control's answer at a start.

        None if control does not answer in time, or, unless `insist`, at the first call.
        """
        try:
            async with asyncio.timeout(patience):
                while True:
                    try:
                        return await self._ask(of_file)
                    except grpc.aio.AioRpcError as error:
                        log.info("control does not say which instances it knows", reason=error.details())
                        if not insist:
                            return None
                    heed_cancellation()
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            return None

    async def run(self) -> None:
        """Informs control for ever."""
        failures = 0
        is_known = are_removed = False
        while True:
            self._wake.clear()
            try:
                answer = await self._beat()
                if answer.superseded:
                    await self._superseded("control hears of a younger process of this sidecar's name")
                    await asyncio.Event().wait()
                if not is_known:
                    await self._compare()
                    are_removed = False
                if self._has_all_reactive and not are_removed:
                    await self._remove_reactive()
                    are_removed = True
                await self._reconcile()
            except grpc.aio.AioRpcError as error:
                heed_cancellation()
                failures += 1
                is_known = False
                self._lost(error, failures)
                await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
                continue
            if not is_known:
                log.info("control knows of this sidecar", instances=len(self._confirmed))
            is_known, failures = True, 0
            metrics.control_up.set(1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    max(BEAT_SECONDS, min(durations.whole_ms(answer.next_beat) / 1000, LONGEST_BEAT_SECONDS))
                ):
                    await self._wake.wait()

    async def close(self, timeout: float) -> None:
        """Reports the last changes, if control is there."""
        if self._instances.is_superseded:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._tell_ends()
        except (grpc.aio.AioRpcError, TimeoutError):
            log.warning("control does not know of the end of instances", instances=len(self._instances.ledger.ended))

    async def _ask(self, of_file: Sequence[InstanceId]) -> KnownToControl:
        """Registers this process, so that an elder process gives way.

        Then asks control for this sidecar's instances.
        """
        await self._beat()
        held = _kept(await self._connection.known_instances())
        missing = set(of_file) - {each.id for each in held}
        elsewhere = frozenset([id_ for id_ in missing if await self._is_elsewhere(id_)])
        self._was_heard = True
        return KnownToControl(tuple(held), elsewhere)

    async def _is_elsewhere(self, id_: InstanceId) -> bool:
        described = await self._connection.describe(resource_name(id_))
        return (
            described is not None
            and described.sidecar_alive
            and described.instance.sidecar not in ("", self._connection.sidecar)
        )

    async def _beat(self) -> instances.BeatResponse:
        request = instances.BeatRequest(
            member=self._member,
            incarnation=str(self._connection.incarnation),
            instances=[status_message(id_, status) for id_, status in (await self._statuses()).items()],
            subscriptions=self._declared.reports(),
            takes_subscriptions=self._declared.are_taken,
            subscriptions_digest=self._declared.digest,
        )
        response = await self._connection.beat(request)
        if response.HasField("subscriptions") and not response.superseded:
            await self._declared.take(response.subscriptions)
        return response

    async def _statuses(self) -> dict[InstanceId, InstanceStatus]:
        """The statuses of the instances that report in time."""
        found = await self._instances.statuses()
        for consumer in self._reactive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_SECONDS):
                    found[consumer.id] = await consumer.status()
        return found

    async def _compare(self) -> None:
        """After control's first answer, or its return: compares control's instances of this sidecar with those here."""
        if not self._was_heard:
            known = await self._ask([each.id for each in self._instances])
            await self._instances.restore(
                [(each, Source.CONTROL) for each in known.held if each.id not in self._instances.ledger.ended]
            )
            for id_ in known.elsewhere:
                if id_ in self._instances:
                    await self._instances.delete(id_, EndCause.ELSEWHERE)
            return
        for each in _kept(await self._connection.known_instances()):
            if each.id not in self._instances:
                self._instances.ledger.ended.setdefault(each.id, EndCause.NOT_HELD)

    async def _remove_reactive(self) -> None:
        """Removes reactive consumers that this sidecar no longer has from control."""
        mine = {resource_name(each.id) for each in self._reactive}
        for message in await self._connection.known_instances():
            if message.kind == events.INSTANCE_KIND_REACTIVE and message.name not in mine:
                await self._connection.remove(message.name, EndCause.NOT_HELD.value)

    async def _reconcile(self) -> None:
        await self._tell_ends()
        for instance in self._instances:
            message = self._message(instance)
            content = message.SerializeToString(deterministic=True)
            if self._confirmed.get(message.name) == content:
                continue
            await self._connection.register(message)
            if instance.id in self._instances:  # it may have ended meanwhile, or changed
                self._confirmed[message.name] = content
                if self._message(instance) == message:
                    self._instances.told(instance.id)
        for name in sorted(self._ended):
            self._confirmed.pop(name, None)
            if name not in {resource_name(each.id) for each in self._reactive}:
                await self._connection.remove(name, EndCause.NOT_HELD.value)
            self._ended.discard(name)
        for consumer in list(self._reactive):
            message = reactive_message(consumer, self._connection.sidecar)
            content = message.SerializeToString(deterministic=True)
            if self._confirmed.get(message.name) != content:
                await self._connection.register(message)
                self._confirmed[message.name] = content
        self._count()

    async def _tell_ends(self) -> None:
        ended = self._instances.ledger.ended
        for id_, cause in list(ended.items()):
            name = resource_name(id_)
            self._confirmed.pop(name, None)
            if cause is not EndCause.ELSEWHERE:
                await self._connection.remove(name, cause.value)
            ended.pop(id_, None)

    def _message(self, instance: ConsumerInstance) -> events.ConsumerInstance:
        return instance_message(instance, self._connection.sidecar)

    def _lost(self, error: grpc.aio.AioRpcError, failures: int) -> None:
        metrics.control_up.set(0)
        self._confirmed.clear()  # a control that comes back may have forgotten
        self._count()
        if failures == 1:
            log.warning(
                "control does not hear this sidecar; serving goes on", reason=error.details(), code=error.code().name
            )

    def _count(self) -> None:
        unconfirmed = sum(resource_name(each.id) not in self._confirmed for each in self._instances)
        metrics.control_backlog.set(unconfirmed + len(self._instances.ledger.ended))


def _kept(messages: Sequence[events.ConsumerInstance]) -> list[KeptInstance]:
    """The instances of backends, as far as this release can read them. Self-acting consumers come from settings."""
    found = []
    for message in messages:
        if message.kind not in (events.INSTANCE_KIND_UNSPECIFIED, events.INSTANCE_KIND_ACTIVE):
            continue
        try:
            found.append(kept_instance(message))
        except ValueError as error:
            log.error("an instance that control knows is not understood", instance=message.name, reason=str(error))
    return found
