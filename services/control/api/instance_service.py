"""InstanceService: what sidecars tell of their consumer instances, and that they live."""

from __future__ import annotations

from typing import Any

from mesh.rpc import events, instances, instances_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller
from services.control.decisions.instances import InstanceDecisions
from services.control.decisions.members import MAX_SIDECARS, Members
from services.control.domain.errors import InvalidField, Unavailable
from services.control.store.journal import Journal


class InstanceService(instances_grpc.InstanceServiceServicer):
    """See InstanceService in instances.proto."""

    def __init__(self, journal: Journal, decisions: InstanceDecisions, members: Members) -> None:
        self._journal = journal
        self._decisions = decisions
        self._members = members

    async def RegisterInstance(
        self, request: instances.RegisterInstanceRequest, context: Any
    ) -> events.ConsumerInstance:
        self._journal.require_loaded()
        shapes.spec_of(request, "instance")
        return await self._decisions.register(request.instance, caller(request))

    async def RemoveInstance(
        self, request: instances.RemoveInstanceRequest, context: Any
    ) -> instances.RemoveInstanceResponse:
        self._journal.require_loaded()
        if not request.name.startswith("instances/"):
            raise InvalidField("name", f"{request.name!r} is not a resource name of the form instances/GROUP.INSTANCE")
        await self._decisions.remove(request.name, request.sidecar, caller(request, reason=request.cause))
        return instances.RemoveInstanceResponse()

    async def ListInstances(
        self, request: instances.ListInstancesRequest, context: Any
    ) -> instances.ListInstancesResponse:
        self._journal.require_loaded()
        known = self._journal.view.instances
        names = sorted(known)
        page, token = pages.cut("instances", names, names, request.page_size, request.page_token)
        return instances.ListInstancesResponse(instances=[known[name] for name in page], next_page_token=token)

    async def Beat(self, request: instances.BeatRequest, context: Any) -> instances.BeatResponse:
        if not request.member.name:
            raise InvalidField("member.name", "is required")
        if not self._members.beat(request.member):
            raise Unavailable("TOO_MANY_MEMBERS", f"control shows at most {MAX_SIDECARS} sidecars")
        return instances.BeatResponse()
