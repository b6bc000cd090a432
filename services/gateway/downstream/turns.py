"""When the requests of one client start that go by their plans.

A handler's `Order` says when: Produce as soon as the Produce before it has sent its calls, the others one after the
other, as on a broker. While a topic moves, Produce of that topic waits or is refused, and so do commits of offsets in
it (`Hold`).
"""

from collections import deque
from dataclasses import replace
from typing import Final, Protocol

from mesh.tenants import Tenant
from services.gateway import clock
from services.gateway.authorization.guarding import guarded
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.downstream.hold import Hold, Started
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.siblings import SiblingWay
from services.gateway.downstream.slots import Slot
from services.gateway.downstream.tables import Follower
from services.gateway.downstream.toll import Toll
from services.gateway.requests.handler import Order
from services.gateway.requests.memory import Session
from services.gateway.requests.mesh.metadata import written_in_steps
from services.gateway.requests.plan import Answer, MeshView, Request
from services.gateway.tenancy.translation import translated
from services.gateway.upstream.lanes import Lanes
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import RequestHeader

_METADATA: Final = int(ApiKey.METADATA)


class Client(Protocol):
    """The connection whose requests these are."""

    session: Session

    @property
    def congested(self) -> bool: ...

    def view(self, header: RequestHeader) -> MeshView: ...

    def slot_answered(self, slot: Slot, answer: Answer) -> None: ...


class Turns:
    """See above."""

    __slots__ = (
        "_commit_held",
        "_follower",
        "_held",
        "_lanes",
        "_mesh",
        "_pumping",
        "_toll",
        "asking",
        "client",
        "pipelined",
        "running",
        "serial",
        "sharing",
    )  # fmt: skip

    def __init__(self, client: Client, mesh: Mesh, follower: Follower, lanes: Lanes, toll: Toll) -> None:
        self.client = client
        self._mesh = mesh
        self._follower = follower
        self._lanes = lanes
        self._toll = toll
        self.sharing = SiblingWay(client, mesh)
        self.serial: deque[Slot] = deque()
        """ONE_BY_ONE requests that have not started."""
        self.running: Slot | FetchInFlight | None = None
        """The ONE_BY_ONE request that has started and has no answer yet."""
        self.pipelined: deque[Slot] = deque()
        """PIPELINED requests that have not started."""
        self.asking: Slot | None = None
        """The PIPELINED request that has started and has not sent its calls yet."""
        self._held = self._commit_held = False
        self._pumping = False

    def take(self, slot: Slot, order: Order) -> None:
        """The request starts, or waits for its turn. One of a tenant's client has full names from here on."""
        access = self._follower.access()
        if access is not None and access.tenant is not None and not self._translates(slot, access.tenant):
            return
        if order is Order.AT_ONCE:
            self._start(slot)
        elif order is Order.PIPELINED:
            if self._mesh.tracing is not None and slot.request is not None:
                slot.seen = self._mesh.tracing.seen(slot.request)
            self.pipelined.append(slot)
        else:
            self.serial.append(slot)
        self.pump()

    def _translates(self, slot: Slot, tenant: Tenant) -> bool:
        """Whether the request goes on; else it has its answer."""
        assert slot.request is not None
        if self.client.session.has_full_names:
            return True
        found = translated(tenant, slot.request)
        if isinstance(found, tuple):
            slot.request, slot.translation = found
            return True
        self.client.slot_answered(slot, found)
        return False

    def is_free_for_produce(self) -> bool:
        """Whether no Produce has to wait, which the next one would overtake."""
        return not self.pipelined and self.asking is None and self._mesh.hold is None

    def is_free_for_fetch(self) -> bool:
        """Whether the next ONE_BY_ONE request may start."""
        return self.running is None and not self.serial and not self.client.congested

    def pump(self) -> None:
        """Start what may start. Not recursive, however deep the starts trigger one another."""
        if self._pumping or not (self.pipelined or self.serial):
            return
        self._pumping = True
        try:
            while self._start_next():
                pass
        finally:
            self._pumping = False

    def ended(self, slot: object) -> None:
        """The request has its answer."""
        if slot is self.running:
            self.running = None

    def end(self) -> None:
        """The client is gone: only its Produce goes on."""
        self.serial.clear()
        self.sharing.close()

    def _start_next(self) -> bool:
        hold = self._mesh.hold
        if self.serial and self.running is None and not self.client.congested and not self._commit_held:
            slot = self.serial[0]
            if hold is not None and slot.commits and slot.request is not None and self._is_held(slot.request, hold):
                self._commit_held = True
                hold.wait(self._released)
            else:
                self.running = self.serial.popleft()
                self._start(slot)
                return True
        if self.pipelined and self.asking is None and not self._held and not self._lanes.must_be_heard_first:
            slot = self.pipelined[0]
            if hold is not None and slot.request is not None and self._is_held(slot.request, hold):
                self._held = True
                hold.wait(self._released)
                return False
            self.asking = self.pipelined.popleft()
            self._start(slot)
            return True
        return False

    def _is_held(self, request: Request, hold: Hold) -> bool:
        return not hold.refuses and hold.concerns(request, self._follower.identity(request.header.client_id))

    def _released(self) -> None:
        self._held = self._commit_held = False
        self.pump()

    def _start(self, slot: Slot) -> None:
        assert slot.handler is not None and slot.request is not None
        if self.sharing.takes(slot):
            return
        slot.began = clock.now()
        client, mesh, follower = self.client, self._mesh, self._follower
        view = client.view(slot.header)
        if (slot.produces or slot.commits) and mesh.hold is not None and mesh.hold.refuses:
            view = replace(view, undecided=mesh.hold.moving(follower.client))
        access = follower.access()
        if access is None:
            plan = slot.handler.plan(slot.request, view)
        else:
            plan = guarded(slot.handler, slot.request, view, access, mesh.refused.take)
        if slot.header.api_key == _METADATA:
            plan = written_in_steps(plan, slot.header.api_version)
        slot.exchange = exchange = Exchange(
            plan,
            mesh.clusters,
            mesh.conversions,
            self._lanes,
            slot.header.client_id,
            lambda _, answer: client.slot_answered(slot, answer),
            follower.view(slot.header.client_id).names,
            mesh.changes,
        )
        if slot.produces:
            mesh.producing[slot] = Started(slot.request, follower.client)
            exchange.on_asked = self._asked
        elif slot.commits:
            mesh.committing[slot] = Started(slot.request, follower.client)
        if self._toll.worked is not None:
            exchange.on_work = self._toll.work
        exchange.start()

    def _asked(self) -> None:
        self.asking = None
        self.pump()
