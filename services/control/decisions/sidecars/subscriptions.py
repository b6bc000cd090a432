"""Commands about the subscriptions of sidecars, and what each sidecar gets of them with its beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from google.protobuf.message import Message
from prometheus_client import Gauge

from mesh.rpc import subscriptions
from services.control.decisions.members.members import MAX_SIDECARS
from services.control.decisions.positions import appended, check_revision
from services.control.domain.sidecars.subscriptions import (
    SUBSCRIPTIONS,
    Declared,
    bring_back,
    declare,
    of_sidecar,
    stream_of,
    withdraw,
)
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

Answer = Callable[[int], StoredAnswer | None]
"""The answer to store for a request_id, given the position of the event."""

declared_gauge = Gauge("kafka_mesh_control_subscriptions", "Subscriptions of sidecars that control has declared.")


class SubscriptionDecisions:
    """Commands about subscriptions. Each returns the position of its event."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._of_sidecars: dict[str, subscriptions.SubscriptionsOfSidecar] = {}
        self._contents: dict[tuple[str, ...], subscriptions.SubscriptionsOfSidecar] = {}
        """By the names in them: sidecars with the same subscriptions share them."""
        self._rests_on: Declared = {}
        declared_gauge.set_function(lambda: len(self.known))

    @property
    def known(self) -> Declared:
        """The subscriptions in force."""
        return self._journal.view.subscriptions

    async def declare(self, request: subscriptions.DeclareSubscriptionRequest, caller: Caller, answer: Answer) -> int:
        """The position of the event; of the earlier event if the subscription is there like this."""
        view = await self._journal.first_time(caller)
        event = declare(view.subscriptions, request.subscription)
        name = request.subscription.name
        otherwise = view.subscriptions[name].revision if event is None else 0
        return await self._append(name, [] if event is None else [event], otherwise, caller, view, answer)

    async def withdraw(self, request: subscriptions.WithdrawSubscriptionRequest, caller: Caller, answer: Answer) -> int:
        view = await self._journal.first_time(caller)
        name = request.name.removeprefix(f"{SUBSCRIPTIONS}/")
        return await self._append(name, [withdraw(view.subscriptions, name)], 0, caller, view, answer)

    async def revert(self, request: subscriptions.RevertSubscriptionsRequest, caller: Caller, answer: Answer) -> int:
        """The position of the last event; 0 if nothing changes."""
        view = await self._journal.first_time(caller)
        check_revision(view, request.to_revision, "to_revision")
        earlier = (await self._journal.view_at(request.to_revision)).subscriptions
        drafts = [Draft(stream_of(_name(each)), each) for each in bring_back(view.subscriptions, earlier)]
        return await appended(self._journal, drafts, 0, caller, view, lambda view: view.subscriptions, answer)

    def news_for(self, sidecar: str, digest: str) -> subscriptions.SubscriptionsOfSidecar | None:
        """The subscriptions of a sidecar that holds those with this digest; None if they are the same."""
        if self.known is not self._rests_on:
            self._of_sidecars, self._contents, self._rests_on = {}, {}, self.known
        mine = self._of_sidecars.get(sidecar)
        if mine is None:
            found = of_sidecar(self.known, sidecar)
            names = tuple(each.name for each in found)
            mine = self._contents.get(names)
            if mine is None:
                mine = self._contents[names] = _whole(found)
            if len(self._of_sidecars) >= MAX_SIDECARS:  # names that come and go, between two decisions
                self._of_sidecars.clear()
            self._of_sidecars[sidecar] = mine
        return None if mine.digest == digest else mine

    async def _append(
        self,
        name: str,
        payloads: Sequence[Message],
        otherwise: int,
        caller: Caller,
        view: MeshView,
        answer: Answer,
    ) -> int:
        drafts = [Draft(stream_of(name), payload) for payload in payloads]
        return await appended(self._journal, drafts, otherwise, caller, view, lambda view: view.subscriptions, answer)


def _whole(mine: Sequence[subscriptions.DeclaredSubscription]) -> subscriptions.SubscriptionsOfSidecar:
    made = subscriptions.SubscriptionsOfSidecar(subscriptions=mine)
    made.digest = sha256(made.SerializeToString(deterministic=True)).hexdigest()
    return made


def _name(payload: Message) -> str:
    return str(getattr(payload, "name", "") or payload.subscription.name)  # type: ignore[attr-defined]
