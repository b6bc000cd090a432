"""The events of standbys, as control appends them to the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mesh.rpc import events, standbys
from services.control.domain.errors import Conflict
from services.control.domain.standbys.standbys import IN_ONE_EVENT
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

StandbyEvent = (
    events.StandbyStarted
    | events.StandbyTopicsSet
    | events.StandbyAclsSet
    | events.StandbyEnded
    | events.FailOverBegun
    | events.FailOverHeld
    | events.FailOverEnded
)
Answer = Callable[[standbys.Standby], StoredAnswer | None]
"""The answer to store for a request_id, given the standby."""


class Entries:
    """Appends events of standbys."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def append(
        self, name: str, new: Sequence[StandbyEvent], caller: Caller, answer: Answer = lambda _: None
    ) -> None:
        """Conflict if the standby has changed or ended meanwhile."""
        view = self._journal.view
        if not isinstance(new[0], events.StandbyStarted) and name not in view.standbys:
            raise Conflict("STANDBY_HAS_ENDED", f"{name} has ended meanwhile")
        await self._journal.append(
            [Draft(name, each) for each in new],
            caller,
            view,
            rests_on=lambda view: view.standbys.get(name),
            answer=lambda _, view: answer(view.standbys.get(name, standbys.Standby(name=name))),
        )

    async def set(self, name: str, topics: Sequence[standbys.StandbyTopic]) -> None:
        """The topics are like this from now on."""
        for each in in_events(name, topics):
            await self.append(name, [each], Caller(CONTROL))


def in_events(name: str, topics: Sequence[standbys.StandbyTopic]) -> Iterator[events.StandbyTopicsSet]:
    """The topics in events of a bounded size."""
    left = iter(topics)
    while some := list(islice(left, IN_ONE_EVENT)):
        yield events.StandbyTopicsSet(name=name, topics=some)
