"""Replays that control carries out itself: it moves an instance by orders, and a group by its offsets.

A reset of a group, step by step
1. Control drains the instances of the group that sidecars hold, each by an order that is part of the replay.
2. When the group is empty on every cluster, control sets its offsets on the clusters that keep them. Kafka refuses to
   set offsets before.
3. The replay has ended. The stopped instances go on: control gives orders again until a sidecar has carried them out.
A control that takes over does all of 1 and 2 again. The request_id of an order follows from the replay, so each order
is given once. Setting offsets twice gives the same result. The stopped instances are known from the log alone, so no
instance stays stopped, whenever and however a replay ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable

import structlog

from mesh import durations
from mesh.instance_names import INSTANCES
from mesh.routing import InvalidRuleError
from mesh.rpc import events, replays
from mesh.rpc import instances as instances_pb
from services.control.decisions.answers import replayed, stored_response
from services.control.decisions.replays.plans import ReplayPlans
from services.control.decisions.sidecars.orders import SidecarOrders
from services.control.domain.errors import NotAllowed, Refusal, Unavailable
from services.control.domain.replays.plans import by_keeper
from services.control.domain.replays.replays import ended
from services.control.domain.sidecars.instances import removed
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import AlreadyAnswered, Journal
from services.control.store.reports import Reports
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.groups import GroupRefusedError

NAMESPACE = uuid.UUID("6f1d2c52-2a1c-4a52-9f0b-0c9b5a2f7d11")
"""The namespace of request ids that follow from replays."""
DRAIN_MS = 30_000
ORDER_EXPIRES_MS = 30_000
ORDER_WITHIN = 120.0
"""Seconds until control has given up an order that nobody carries out: the sum of its bounds, and some more."""
GO_ON_EXPIRES_MS = 3_600_000
"""An order to resume waits so long for an absent sidecar; then control gives it again."""
EMPTY_WITHIN = 60.0
"""Seconds until a group must be empty; a member that has died counts until its session has ended."""
SET_WITHIN = 60.0
"""Seconds that a cluster may be away if it keeps the group's offsets."""
POLL = 0.5

log = structlog.get_logger(__name__)


class Cancelled(Exception):  # noqa: N818  (an outcome)
    """A user wants the replay to end, and it has set nothing yet."""


class OffsetResets:
    """Carries out seeks and resets of groups."""

    def __init__(
        self,
        journal: Journal,
        reports: Reports,
        plans: ReplayPlans,
        orders: SidecarOrders,
        connections: Connections,
    ) -> None:
        self._journal = journal
        self._reports = reports
        self._plans = plans
        self._orders = orders
        self._connections = connections

    async def carry_out(self, replay: replays.Replay) -> events.ReplayEnded:
        """Carries the replay out; returns its end. On StoreUnavailableError or Unavailable, the caller tries again."""
        try:
            self._require_wanted(replay)
            text = await (self._reset(replay) if replay.spec.HasField("group") else self._seek(replay))
        except Cancelled:
            return ended(replay.name, replays.REPLAY_STATE_CANCELLED, "nothing was set", replay.partitions)
        except (NotAllowed, _FailedError) as problem:
            return ended(replay.name, replays.REPLAY_STATE_FAILED, str(problem), replay.partitions)
        return ended(replay.name, replays.REPLAY_STATE_DONE, text, replay.partitions)

    async def let_go_on(self) -> None:
        """Gives the orders to resume that are due."""
        view = self._journal.view
        going_on = {(each.target, each.replay) for each in view.orders.open.values() if each.command.HasField("resume")}
        for instance, name in view.replays.stopped.items():
            if name in view.replays.open or (instance, name) in going_on:
                continue
            if instance not in self._reports.known.instances:
                await self._forget(instance, name)
                continue
            command = events.SidecarCommand(resume=events.ResumeInstance())
            request = instances_pb.PlaceOrderRequest(
                target=instance, command=command, expire_after=durations.of_ms(GO_ON_EXPIRES_MS)
            )
            await self._orders.place(request, Caller(CONTROL, f"{name} has ended"), lambda _order: None, name)

    async def _forget(self, instance: str, replay: str) -> None:
        """Records that an instance which a replay has stopped is gone: nobody has to resume it."""
        gone = removed(instance, "its sidecar closed it while a replay had stopped it")
        await self._journal.append(
            [Draft(instance, gone)],
            Caller(CONTROL, f"{replay} has ended"),
            self._journal.view,
            rests_on=lambda view: view.replays.stopped.get(instance),
        )

    async def _seek(self, replay: replays.Replay) -> str:
        instance = replay.spec.seek.instance
        commands = [events.SidecarCommand(seek=_seek_to(each)) for each in replay.spec.ranges]
        placed = [await self._order(replay, instance, command, f"seek {n}") for n, command in enumerate(commands)]
        said = [await self._outcome(order) for order in placed]
        return "; ".join(dict.fromkeys(text for text in said if text)) or "it goes on there"

    async def _reset(self, replay: replays.Replay) -> str:
        group = replay.spec.group.group
        drain = events.SidecarCommand(drain=events.DrainInstance(timeout=durations.of_ms(DRAIN_MS)))
        placed = [await self._order(replay, instance, drain, "drain") for instance in replay.stopped]
        for order in placed:
            await self._outcome(order)
        await self._until_empty(replay, group)
        self._require_wanted(replay)
        await self._set(replay, group)
        also = (
            f"; {', '.join(each.removeprefix(INSTANCES) for each in replay.stopped)} may go on"
            if replay.stopped
            else ""
        )
        number = len(replay.partitions)
        return f"offsets of group {group!r} are set in {number} partition{'' if number == 1 else 's'}{also}"

    async def _until_empty(self, replay: replays.Replay, group: str) -> None:
        await self._until(
            lambda: self._leave(replay, group), EMPTY_WITHIN, f"group {group!r} was not empty within {EMPTY_WITHIN:g} s"
        )

    async def _leave(self, replay: replays.Replay, group: str) -> str:
        self._require_wanted(replay)
        return ", ".join(name for _, name in await self._plans.members(group))

    async def _set(self, replay: replays.Replay, group: str) -> None:
        view = self._journal.view
        try:
            wanted = by_keeper(view.state.effective, group, replay.partitions)
        except (Refusal, InvalidRuleError) as error:
            raise _FailedError(f"{error}; nothing was set") from error
        done: list[str] = []
        for cluster, offsets in wanted.items():

            async def set_there(cluster: str = cluster, offsets: dict[tuple[str, int], int] = offsets) -> str:
                try:
                    await self._connections.set_offsets(view.state.effective.clusters[cluster], group, offsets)
                except UnreachableError as error:
                    return str(error)
                except GroupRefusedError as error:
                    raise _FailedError(f"cluster {cluster!r} does not set them: {error}{_so_far(done)}") from error
                return ""

            await self._until(set_there, SET_WITHIN, f"not set within {SET_WITHIN:g} s{_so_far(done)}")
            done.append(cluster)

    async def _until(self, problem: Callable[[], Awaitable[str]], within: float, text: str) -> None:
        """Asks until there is no problem any more; fails with the last problem after `within` seconds."""
        last = ""
        try:
            async with asyncio.timeout(within):
                while True:
                    try:
                        last = await problem()
                    except Unavailable as error:
                        last = error.message
                    if not last:
                        return
                    await asyncio.sleep(POLL)
        except TimeoutError:
            raise _FailedError(f"{text}: {last}") from None

    async def _order(
        self, replay: replays.Replay, target: str, command: events.SidecarCommand, step: str
    ) -> events.SidecarOrder:
        """An order that is part of a replay; the same order, if control has given it before."""
        request = instances_pb.PlaceOrderRequest(
            target=target,
            command=command,
            expire_after=durations.of_ms(ORDER_EXPIRES_MS),
            request_id=str(uuid.uuid5(NAMESPACE, f"{replay.name} {step} {target}")),
        )
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        who = Caller(replay.actor, replay.reason, request_id=request.request_id, digest=digest)
        try:
            return await self._orders.place(request, who, lambda order: stored_response(who, order), replay.name)
        except AlreadyAnswered as again:
            return replayed(events.SidecarOrder, again.answer)
        except Unavailable:
            raise
        except Refusal as error:
            raise _FailedError(f"{target.removeprefix(INSTANCES)} can't get the order: {error}") from error

    async def _outcome(self, order: events.SidecarOrder) -> str:
        """The description of an outcome, as the sidecar reports it."""
        last = await self._orders.following.outcome(order, ORDER_WITHIN)
        name = last.target.removeprefix(INSTANCES)
        if not last.HasField("outcome"):
            raise _FailedError(f"{name}: nobody has said within {ORDER_WITHIN:g} s what became of {last.name}")
        if last.outcome.result != events.ORDER_RESULT_DONE:
            raise _FailedError(f"{name}: {last.outcome.description or 'its sidecar does not say why'}")
        return last.outcome.description

    def _require_wanted(self, replay: replays.Replay) -> None:
        now = self._journal.view.replays.open.get(replay.name)
        if now is None or now.cancelling:
            raise Cancelled


class _FailedError(Exception):
    """A step of the replay failed; the text says why."""


def _so_far(done: list[str]) -> str:
    return f" (set on {', '.join(done)}; to do it again does no harm)" if done else ""


def _seek_to(asked: replays.ReplayRange) -> events.SeekInstance:
    seek = events.SeekInstance(topic=asked.topic)
    if asked.HasField("partition"):
        seek.partition = asked.partition
    match asked.WhichOneof("start"):
        case "start_offset":
            seek.offset = asked.start_offset
        case "start_time":
            seek.time.CopyFrom(asked.start_time)
        case "start_at_end":
            seek.last = True
        case _:
            seek.first = True
    return seek
