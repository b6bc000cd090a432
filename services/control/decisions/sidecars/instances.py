"""Consumer instances that sidecars hold: sidecars report them, operators see them.

The log has only the orders about instances.
"""

from __future__ import annotations

from mesh.rpc import events
from services.control.decisions.sidecars.orders import SidecarOrders
from services.control.domain.errors import NotAllowed
from services.control.domain.reports import Reported
from services.control.domain.sidecars.instances import name_of, registered, removed
from services.control.store.drafts import Caller
from services.control.store.journal import Journal
from services.control.store.reports import Reports


class InstanceDecisions:
    """The reports of sidecars about their instances. A report doesn't wait for routing writes."""

    def __init__(self, journal: Journal, reports: Reports, orders: SidecarOrders) -> None:
        self._journal = journal
        self._reports = reports
        self._orders = orders

    async def register(self, wanted: events.ConsumerInstance, caller: Caller) -> events.ConsumerInstance:
        """The instance as it is now; an instance that control knows already, exactly like this, makes no report."""
        self._journal.require_leading()
        name = name_of(wanted)
        await self._reports.add(name, caller.actor, lambda known: registered(known.instances, wanted))
        instance = self._reports.known.instances[name]
        await self._orders.hand_over()
        return instance

    async def remove(self, name: str, sidecar: str, caller: Caller) -> None:
        """Forgets an instance; an unknown instance is no error."""
        self._journal.require_leading()

        def removal(known: Reported) -> events.ConsumerInstanceRemoved | None:
            instance = known.instances.get(name)
            if instance is None:
                return None
            if instance.sidecar != sidecar:
                raise NotAllowed(
                    "HELD_BY_ANOTHER",
                    name,
                    f"instance {name!r} is held by {instance.sidecar!r}; only that one can remove it, not {sidecar!r}",
                )
            return removed(name, caller.reason)

        await self._reports.add(name, caller.actor, removal)
