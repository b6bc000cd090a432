"""Consumer instances that sidecars hold: told by them, kept in the log, shown to operators."""

from __future__ import annotations

from mesh.rpc import events
from services.control.domain.errors import NotAllowed
from services.control.domain.instances import name_of, registered, removed
from services.control.store.journal import Caller, Draft, Journal


class InstanceDecisions:
    """Commands about consumer instances. They don't wait for routing writes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def register(self, wanted: events.ConsumerInstance, caller: Caller) -> events.ConsumerInstance:
        """The instance as it is now; an instance that is there already, just like this, makes no event."""
        await self._journal.first_time(caller)
        name = name_of(wanted)
        event = registered(self._journal.view.instances, wanted)
        if event is None:
            return self._journal.view.instances[name]
        await self._journal.append([Draft(name, event)], caller, rests_on=lambda view: view.instances.get(name))
        return event.instance

    async def remove(self, name: str, sidecar: str, caller: Caller) -> None:
        """Forgets an instance; one that is not there is no error."""
        await self._journal.first_time(caller)
        known = self._journal.view.instances.get(name)
        if known is None:
            return
        if known.sidecar != sidecar:
            raise NotAllowed(
                "HELD_BY_ANOTHER",
                name,
                f"instance {name!r} is held by {known.sidecar!r}; only that one can remove it, not {sidecar!r}",
            )
        event = removed(name, caller.reason)
        await self._journal.append([Draft(name, event)], caller, rests_on=lambda view: view.instances.get(name))
