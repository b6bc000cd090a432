"""Carries out the orders of operators.

An order pauses, resumes, seeks, drains or removes an instance, sets levels of loggers, or reports health and
information.

1. Orders for one target begin in the order in which they came, one after the other. A drain waits for its backend, so
   others do not wait for it: a resume, above all, ends it.
2. The effect of an order outlives the process: a pause is in the state file, a seek is committed. An order that is
   carried out again leads to the same state.
3. Every order has an outcome, in bounded time: the action that was done, or a sentence with the reason why not.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

import orjson
import structlog

from mesh import durations
from mesh.rpc import events
from services.sidecar.admin import log_levels
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_values import EndCause, Standing
from services.sidecar.consuming.instances import Instances
from services.sidecar.consuming.positions import Position, SeekTarget
from services.sidecar.control.messages import change_of, resource_name, seek_target
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.reactive.options import Change
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.telemetry import metrics

ORDER_SECONDS = 30.0
"""The time that an order may take; for a drain, beyond the time that it waits for its backend."""
USUAL_DRAIN_SECONDS = 30.0
READING = frozenset({"get_log_levels", "check_health", "get_info"})
"""Commands that change nothing."""

Consumer = ConsumerInstance | ReactiveConsumer
"""A consumer that operators see and command."""
Checks = Callable[[], Awaitable[Mapping[str, str | None]]]
"""The problem of each part of the sidecar; None for a part without one."""

log = structlog.get_logger(__name__)


class OrderFailed(Exception):  # noqa: N818  # an outcome for the operator who gave the order
    """The order cannot be carried out; the text says why."""


class Orders:
    """Carries out orders."""

    def __init__(self, instances: Instances, checks: Checks, information: Callable[[], Mapping[str, Any]]) -> None:
        self._instances = instances
        self._checks = checks
        self._information = information
        self._reactive: list[ReactiveConsumer] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def take_in(self, consumer: ReactiveConsumer) -> None:
        """Adds a reactive consumer that takes orders."""
        self._reactive.append(consumer)

    def take_out(self, consumer: ReactiveConsumer) -> None:
        """Removes a reactive consumer that has ended."""
        self._reactive.remove(consumer)

    def consumers(self) -> Iterator[Consumer]:
        """All consumers that take orders."""
        yield from self._reactive
        yield from self._instances

    async def carry_out(self, order: events.SidecarOrder) -> events.OrderOutcome:
        """Carries out one order. A failure is an outcome, too."""
        command = order.command.WhichOneof("command") or "none"
        try:
            async with asyncio.timeout(_bound_of(order.command)):
                description, details = await self._done(command, order)
            outcome = _outcome(events.ORDER_RESULT_DONE, description, details)
        except (OrderFailed, Fault, log_levels.UnknownLevelError) as problem:
            outcome = _outcome(events.ORDER_RESULT_FAILED, str(problem))
        except TimeoutError:
            seconds = _bound_of(order.command)
            outcome = _outcome(
                events.ORDER_RESULT_FAILED, f"it was not done within {seconds:g} s, and may still have an effect"
            )
        except Exception:
            log.exception("an order failed", order=order.name, command=command)
            outcome = _outcome(events.ORDER_RESULT_FAILED, "unexpected failure; the sidecar's log has the reason")
        result = events.OrderResult.Name(outcome.result).removeprefix("ORDER_RESULT_").lower()
        metrics.orders.labels(command, result).inc()
        log.info(
            "an operator's order", order=order.name, target=order.target, command=command, result=result,
            description=outcome.description,
        )  # fmt: skip
        return outcome

    async def _done(self, command: str, order: events.SidecarOrder) -> tuple[str, object]:
        said = order.command
        match command:
            case "pause":
                return await self.pause(order.target), None
            case "resume":
                return await self.resume(order.target), None
            case "seek":
                positions = await self.seek(order.target, seek_target(said.seek))
                description = f"it goes on elsewhere in {len(positions)} partition{'s' * (len(positions) != 1)}"
                return description, [_shown(one) for one in positions]
            case "drain":
                return await self.drain(order.target, durations.in_s(said.drain.timeout) or USUAL_DRAIN_SECONDS), None
            case "remove":
                return await self._remove(order.target)
            case "configure":
                return await self._configure(order.target, change_of(said.configure)), None
            case "set_log_levels":
                return "levels are set", log_levels.set_levels(dict(said.set_log_levels.levels))
            case "get_log_levels":
                return "", log_levels.levels()
            case "check_health":
                return await self._check_health()
            case "get_info":
                return "", await asyncio.to_thread(self._information)
        raise OrderFailed("this release of the sidecar does not know such an order; start it with a newer one")

    # orders that operators also give over HTTP; each returns its outcome. Fault if it cannot be carried out

    async def pause(self, target: str) -> str:
        async with self._locked(target):
            instance = self._consumer(target)
            await instance.pause()
            await self._changed(instance)
            if instance.standing is not Standing.PAUSED:
                return f"it gives nothing already: it is {instance.standing.value}"
        return "it gives nothing until it is resumed, and stays in its group"

    async def resume(self, target: str) -> str:
        async with self._locked(target):
            instance = self._consumer(target)
            was = instance.standing
            await instance.resume()
            await self._changed(instance)
        return f"it gives records; it was {was.value}"

    async def seek(self, target: str, to: SeekTarget) -> list[Position]:
        """Seeks; the positions at which the instance continues."""
        async with self._locked(target):
            return await self._consumer(target).seek(to)

    async def drain(self, target: str, patience: float) -> str:
        async with self._locked(target):
            instance = self._consumer(target)
            draining = asyncio.create_task(instance.drain(patience))
            await asyncio.sleep(0)  # the drain has begun: the next order finds the instance draining
        try:
            is_committed = await draining
        finally:
            draining.cancel()
        await self._changed(instance)
        if is_committed:
            return "all that it gave was committed; it has left its group until it is resumed"
        return (
            f"not all that it gave was committed within {patience:g} s, and comes again to whoever reads next; "
            "it has left its group until it is resumed"
        )

    async def _remove(self, target: str) -> tuple[str, object]:
        async with self._locked(target):
            try:
                instance = self._consumer(target)
            except Fault:
                return "there is no such instance any more", None
            if not isinstance(instance, ConsumerInstance):
                raise OrderFailed(
                    "it is there as long as settings, control or the backend declare it; pause it, or drain it"
                )
            await self._instances.delete(instance.id, EndCause.ORDERED)
        return "it is closed and forgotten", None

    async def _configure(self, target: str, change: Change) -> str:
        async with self._locked(target):
            for consumer in self._reactive:
                if resource_name(consumer.id) == target:
                    await consumer.configure(change)
                    return "from now on; batches that are on their way end as they began"
        raise OrderFailed("it is no reactive consumer: its backend decides what it reads, and when")

    async def _changed(self, consumer: Consumer) -> None:
        """Saves the change of an instance. A reactive consumer saves its own changes."""
        if isinstance(consumer, ConsumerInstance):
            await self._instances.changed(consumer)

    async def _check_health(self) -> tuple[str, object]:
        checks = await self._checks()
        faulty = sorted(name for name, fault in checks.items() if fault)
        return f"{', '.join(faulty)} failed" if faulty else "OK", {
            name: fault or "OK" for name, fault in checks.items()
        }

    def _consumer(self, target: str) -> Consumer:
        """The consumer of this name.

        A name alone does not show the end of the group, so each consumer gives its own name.
        """
        for consumer in self.consumers():
            if resource_name(consumer.id) == target:
                return consumer
        raise Fault(FaultKind.CONSUMER_INSTANCE_NOT_FOUND, f"this sidecar holds no instance {target!r}")

    @contextlib.asynccontextmanager
    async def _locked(self, target: str) -> AsyncIterator[None]:
        """Orders for one target wait for each other; asyncio's locks are fair."""
        lock = self._locks.setdefault(target, asyncio.Lock())
        async with lock:
            yield


def _bound_of(command: events.SidecarCommand) -> float:
    drain = durations.in_s(command.drain.timeout) or USUAL_DRAIN_SECONDS
    return ORDER_SECONDS + drain if command.HasField("drain") else ORDER_SECONDS


def _outcome(result: events.OrderResult.ValueType, description: str, details: object = None) -> events.OrderOutcome:
    outcome = events.OrderOutcome(
        result=result,
        description=description,
        details_json="" if details is None else orjson.dumps(details).decode(),
    )
    outcome.time.GetCurrentTime()
    return outcome


def _shown(position: Position) -> dict[str, object]:
    return {
        "topic": position.partition.topic,
        "partition": position.partition.partition,
        "offset": position.offset,
    }
