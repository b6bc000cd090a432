"""Keeps control informed of this sidecar and its instances, without ever standing in the way of the backend.

It compares what is with what control has confirmed, and tells the difference; so nothing has to be queued while
control is down, and a control that comes back is told everything again. Each call has a time-out, failures are
repeated with growing pauses.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import grpc
import structlog

from mesh import VERSION
from mesh.rpc import admin, events, instances, instances_grpc
from services.sidecar import metrics
from services.sidecar.consuming.records import EndCause, InstanceId

ACTOR_METADATA = "x-mesh-actor"
BEAT_SECONDS = 3.0
CALL_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
MAX_REMOVALS = 1_000
"""Instances that ended while control was away; beyond that the oldest are forgotten."""

PAGE_SIZE = 1_000
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.NOT_FOUND,
}
T = TypeVar("T")

log = structlog.get_logger(__name__)

InstanceMessages = Callable[[], Iterable[events.ConsumerInstance]]


def resource_name(id_: InstanceId) -> str:
    """The name that control knows an instance by."""
    return f"instances/{id_.group}.{id_.instance}"


class ControlLink:
    """The background task that talks to control. `changed` and `ended` are told what happens to instances."""

    def __init__(self, address: str, *, sidecar: str, listen: str, current: InstanceMessages) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = instances_grpc.InstanceServiceStub(self._channel)
        self._sidecar = sidecar
        self._who = ((ACTOR_METADATA, sidecar.encode("ascii", "replace").decode()),)  # for control's history
        self._member = admin.Member(
            name=f"members/{sidecar}", kind=admin.MEMBER_KIND_SIDECAR, version=VERSION, address=listen
        )
        self._current = current
        self._confirmed: dict[str, bytes] = {}
        self._removals: dict[str, str] = {}
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """An instance was made or subscribed."""
        self._wake.set()

    def ended(self, id_: InstanceId, cause: EndCause) -> None:
        """An instance is no more."""
        name = resource_name(id_)
        self._confirmed.pop(name, None)
        self._removals[name] = cause.value
        while len(self._removals) > MAX_REMOVALS:
            self._removals.pop(next(iter(self._removals)))
        self._wake.set()

    async def run(self) -> None:
        """Informs control for ever."""
        failures = 0
        is_known = False
        while True:
            self._wake.clear()
            try:
                await self._call(
                    "Beat",
                    self._stub.Beat(
                        instances.BeatRequest(member=self._member), timeout=CALL_SECONDS, metadata=self._who
                    ),
                )
                if not is_known:
                    await self._disown_strangers()
                await self._reconcile()
            except grpc.aio.AioRpcError as error:
                failures += 1
                is_known = False
                self._lost(error, failures)
                pause = min(2 ** min(failures, 5), MAX_PAUSE_SECONDS)
                await asyncio.sleep(
                    pause * random.uniform(0.5, 1)
                )  # all sidecars of a control must not come back at once
                continue
            if not is_known:
                log.info("control knows of this sidecar", instances=len(self._confirmed))
            is_known, failures = True, 0
            metrics.control_up.set(1)
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def close(self, timeout: float) -> None:
        """Says what is left to say, if control is there, and hangs up."""
        try:
            async with asyncio.timeout(timeout):
                await self._remove()
        except (grpc.aio.AioRpcError, TimeoutError):
            log.warning("control was not told of the end of instances", instances=len(self._removals))
        await self._channel.close(grace=None)

    async def _reconcile(self) -> None:
        await self._remove()
        for message in self._current():
            name, content = message.name, message.SerializeToString(deterministic=True)
            if self._confirmed.get(name) != content:
                request = instances.RegisterInstanceRequest(instance=message)
                await self._tell(
                    "RegisterInstance",
                    self._stub.RegisterInstance(request, timeout=CALL_SECONDS, metadata=self._who),
                    name,
                )
                if name not in self._removals:  # it may have ended meanwhile
                    self._confirmed[name] = content
        self._count()

    async def _remove(self) -> None:
        for name, cause in list(self._removals.items()):
            request = instances.RemoveInstanceRequest(name=name, sidecar=self._sidecar, cause=cause)
            await self._tell(
                "RemoveInstance", self._stub.RemoveInstance(request, timeout=CALL_SECONDS, metadata=self._who), name
            )
            self._removals.pop(name, None)

    async def _disown_strangers(self) -> None:
        """Removes what control believes is ours: instances of a process of this name that ended without a word."""
        page_token = ""
        while True:
            request = instances.ListInstancesRequest(page_size=PAGE_SIZE, page_token=page_token)
            page = await self._call(
                "ListInstances", self._stub.ListInstances(request, timeout=CALL_SECONDS, metadata=self._who)
            )
            held = {message.name for message in self._current()}
            for known in page.instances:
                if known.sidecar == self._sidecar and known.name not in held:
                    self._removals.setdefault(known.name, "sidecar started anew")
            page_token = page.next_page_token
            if not page_token:
                return

    async def _tell(self, call_name: str, call: Awaitable[object], instance: str) -> None:
        """A call about one instance. A refusal is the end of it: repeating would not help, and others wait."""
        try:
            await self._call(call_name, call)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _REFUSALS:
                raise
            log.warning("control refuses", call=call_name, instance=instance, reason=error.details())

    async def _call(self, call_name: str, call: Awaitable[T]) -> T:
        try:
            answer = await call
        except grpc.aio.AioRpcError:
            metrics.control_calls.labels(call_name, "failed").inc()
            raise
        metrics.control_calls.labels(call_name, "ok").inc()
        return answer

    def _lost(self, error: grpc.aio.AioRpcError, failures: int) -> None:
        metrics.control_up.set(0)
        self._confirmed.clear()  # a control that comes back may have forgotten
        self._count()
        if failures == 1:
            log.warning(
                "control does not hear this sidecar; serving goes on", reason=error.details(), code=error.code().name
            )

    def _count(self) -> None:
        unconfirmed = sum(message.name not in self._confirmed for message in self._current())
        metrics.control_backlog.set(unconfirmed + len(self._removals))
