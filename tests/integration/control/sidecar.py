"""The sidecar that tests play: it beats, tells of instances, follows its orders and says how they went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from mesh.rpc import admin, events, instances, pipelines
from tests.integration.control.world import CALL, World

ELDER, YOUNGER = "1795305600000-zzzz", "1795305600001-aaaa"


class Sidecar:
    """One process of a sidecar."""

    def __init__(self, world: World, name: str = "s1", incarnation: str = ELDER) -> None:
        self._world = world
        self.name = name
        self.incarnation = incarnation

    async def beats(self, *statuses: instances.InstanceStatus) -> bool:
        """Whether it may go on."""
        request = instances.BeatRequest(
            member=admin.Member(name=f"members/{self.name}"), incarnation=self.incarnation, instances=statuses
        )
        return not (await self._world.instances.Beat(request, timeout=CALL)).superseded

    async def holds(self, name: str = "billing.one", **fields: Any) -> events.ConsumerInstance:
        group, _, instance_id = name.partition(".")
        instance = events.ConsumerInstance(group=group, instance_id=instance_id, sidecar=self.name, **fields)
        request = instances.RegisterInstanceRequest(instance=instance)
        return await self._world.instances.RegisterInstance(request, timeout=CALL)

    async def reports(self, order: events.SidecarOrder, **outcome: Any) -> None:
        said = events.OrderOutcome(**{"result": events.ORDER_RESULT_DONE, **outcome})
        request = instances.ReportOrderRequest(name=order.name, sidecar=self.name, outcome=said)
        await self._world.instances.ReportOrder(request, timeout=CALL)

    @asynccontextmanager
    async def follows(self) -> AsyncIterator[Orders]:
        request = instances.FollowOrdersRequest(sidecar=self.name, incarnation=self.incarnation)
        call = self._world.instances.FollowOrders(request)
        try:
            yield Orders(call)
        finally:
            call.cancel()


class Pipeline(Sidecar):
    """One process of a pipeline."""

    def __init__(self, world: World, name: str = "p1", incarnation: str = ELDER) -> None:
        super().__init__(world, f"pipelines/{name}", incarnation)

    async def reports_jobs(self, *jobs: pipelines.JobStatus) -> None:
        request = pipelines.ReportJobsRequest(pipeline=self.name, incarnation=self.incarnation, jobs=jobs)
        await self._world.pipelines.ReportJobs(request, timeout=CALL)


class Orders:
    """What a sidecar is told, one after the other."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def next(self) -> events.SidecarOrder:
        async with asyncio.timeout(CALL):
            order = await self._call.read()
        if order is grpc.aio.EOF:
            raise EOFError("control has no more orders on this stream")
        assert isinstance(order, events.SidecarOrder)
        return order


async def place(world: World, target: str = "instances/billing.one", **fields: Any) -> events.SidecarOrder:
    """An order of ada's: to pause, unless another command is given."""
    command = fields.pop("command", events.SidecarCommand(pause=events.PauseInstance()))
    request = instances.PlaceOrderRequest(target=target, command=command, **fields)
    return await world.instances.PlaceOrder(request, timeout=CALL, metadata=[("x-mesh-actor", "ada")])


async def order_now(world: World, order: events.SidecarOrder) -> events.SidecarOrder:
    return await world.instances.GetOrder(instances.GetOrderRequest(name=order.name), timeout=CALL)
