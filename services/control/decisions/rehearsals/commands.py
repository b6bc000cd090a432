"""Commands about rehearsals of clusters, and the loop that leads each to its end.

Theory of operation
1. A rehearsal is in the log before its topics are made on the candidate, and leaves the log when they are deleted. So
   whoever leads next finds the topics, whenever control is killed.
2. Gateways write from the event on that says RUNNING. They stop with the event that says ENDING, or at the end time by
   themselves. Control waits `LAST_COPIES_S` after that event, because copies may still be on their way.
3. A candidate that is away keeps its rehearsal in ENDING until it has deleted the topics.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import structlog
from prometheus_client import Gauge

from mesh.rehearsals.figures import added
from mesh.rehearsals.words import candidate_topic
from mesh.routing import Place
from mesh.routing.policies import REHEARSAL_POLICY
from mesh.rpc import events, rehearsals
from services.control.decisions.leading import looks
from services.control.decisions.members.members import Members
from services.control.decisions.short_ids import new_id
from services.control.decisions.topics.looking import Looking
from services.control.domain.errors import NotAllowed, Refusal, Unavailable
from services.control.domain.rehearsals.rehearsals import (
    ENDING,
    PREPARING,
    REHEARSALS,
    RUNNING,
    begun,
    changed,
    chosen,
    completed,
    in_state,
    over,
    rehearsal_of,
    rehearsals_of,
    settings_there,
)
from services.control.domain.view import MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal, is_rehearsal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 1.0
"""Seconds between two checks of the rehearsals."""
LAST_COPIES_S = 5.0
"""Seconds from the end to the deletion: gateways hear of the end meanwhile, and candidates answer."""
AGAIN_S = 10.0
"""Seconds after which control asks a candidate again that did not delete the topics."""

Answer = Callable[[rehearsals.Rehearsal], StoredAnswer | None]
"""The answer to store for a request_id, given the rehearsal."""

log = structlog.get_logger(__name__)
open_gauge = Gauge("kafka_mesh_control_rehearsals", "Rehearsals of clusters whose topics are not deleted yet.")


class RehearsalDecisions:
    """The decisions about rehearsals of clusters."""

    def __init__(self, journal: Journal, connections: Connections, looking: Looking, members: Members) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._connections = connections
        self._looking = looking
        self._members = members
        self._next: dict[str, float] = {}
        """Rehearsals in ENDING -> when control deletes their topics next, by the clock of the event loop."""
        self._problems: dict[str, str] = {}

    async def plan(self, request: rehearsals.StartRehearsalRequest) -> rehearsals.Rehearsal:
        """The rehearsal that would begin. Changes nothing."""
        table = self._journal.view.state.effective
        whole = completed(request, table)
        for name, version in sorted(self._members.routers_below(REHEARSAL_POLICY.table_format).items()):
            raise NotAllowed(
                "ROUTER_TOO_OLD",
                f"members/{name}",
                f"router {name!r} is of release {version or 'unknown'}, which passes over rehearsals: its gateways "
                "would write nothing to the candidate. Upgrade it, or stop it, then retry",
            )
        seen = await self._looking.topics()
        known = {each.name: each for each in seen.topics}
        names = chosen(whole, table, {name: each.place.cluster for name, each in known.items()})
        try:
            there = await self._connections.topics(table.clusters[whole.cluster_name])
            settings = await self._settings([known[name].place for name in names])
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the rehearsal does not begin") from None
        for name in names:
            if candidate_topic(name) in there:
                raise NotAllowed(
                    "TOPIC_EXISTS",
                    f"topics/{candidate_topic(name)}",
                    f"cluster {whole.cluster_name!r} has a topic {candidate_topic(name)!r} already: delete it there",
                )
        topics = [
            rehearsals.RehearsedTopic(
                topic=name, partitions=known[name].partitions, settings=settings_there(settings[known[name].place])
            )
            for name in names
        ]
        return begun(whole, topics, new_id(REHEARSALS), self.clock())

    async def start(
        self, request: rehearsals.StartRehearsalRequest, caller: Caller, answer: Answer
    ) -> rehearsals.Rehearsal:
        """Begins a rehearsal; returns when its topics are there."""
        view = await self._journal.first_time(caller)
        plan = await self.plan(request)
        await self._append(view, changed(plan), caller, answer(in_state(plan, RUNNING)))
        if is_rehearsal.get():
            return plan
        await self._prepare(plan)
        return rehearsal_of(self._journal.view.state.effective, plan.cluster_name)

    async def end(self, cluster: str, caller: Caller, answer: Answer) -> rehearsals.Rehearsal:
        """Ends a rehearsal. Its topics are deleted a moment later."""
        view = await self._journal.first_time(caller)
        found = rehearsal_of(view.state.effective, cluster)
        if found.state == ENDING:
            return self.shown(cluster)
        ended = in_state(found, ENDING, figures=self._figures(found))
        await self._append(view, changed(ended), caller, answer(ended))
        return ended

    def shown(self, cluster: str) -> rehearsals.Rehearsal:
        """A rehearsal with its figures now."""
        found = rehearsal_of(self._journal.view.state.effective, cluster)
        figures = found.figures if found.state == ENDING else self._figures(found)
        return in_state(found, found.state, self._problems.get(found.rehearsal_id, found.problem), figures)

    def _figures(self, of: rehearsals.Rehearsal) -> list[rehearsals.RehearsalFigures]:
        reports = self._members.client_reports().values()
        own = (each for report in reports for each in report.rehearsals if each.rehearsal_id == of.rehearsal_id)
        return added(own, by_topic=True)

    async def run(self) -> None:
        """Leads each rehearsal to its end, for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            found = rehearsals_of(self._journal.view.state.effective)
            open_gauge.set(len(found))
            ids = {each.rehearsal_id for each in found.values()}
            self._next = {name: at for name, at in self._next.items() if name in ids}
            self._problems = {name: why for name, why in self._problems.items() if name in ids}
            for each in found.values():
                with contextlib.suppress(Refusal, StoreUnavailableError, TimeoutError):
                    await self._lead(each)

    async def _lead(self, of: rehearsals.Rehearsal) -> None:
        now = asyncio.get_running_loop().time()
        if of.state == ENDING:
            if now >= self._next.setdefault(of.rehearsal_id, now + LAST_COPIES_S):
                self._next[of.rehearsal_id] = now + AGAIN_S
                await self._delete(of)
        elif self.clock() >= of.end_time.ToDatetime(UTC):
            ended = in_state(of, ENDING, figures=self._figures(of))
            await self._append(self._journal.view, changed(ended), Caller(CONTROL, "its time is over"))
        elif of.state == PREPARING:
            await self._prepare(of)

    async def _prepare(self, of: rehearsals.Rehearsal) -> None:
        """Makes the topics. If the candidate does not take them, the rehearsal ends."""
        view = self._journal.view
        cluster = view.state.effective.clusters.get(of.cluster_name)
        known = rehearsals_of(view.state.effective).get(of.cluster_name)
        if cluster is None or known is None or known.rehearsal_id != of.rehearsal_id or known.state != PREPARING:
            return
        wanted = {candidate_topic(each.topic): (each.partitions, dict(each.settings)) for each in of.topics}
        try:
            await self._connections.create_topics(cluster, wanted)
        except UnreachableError as error:
            why = f"its topics could not be made: {error}"
            await self._append(view, changed(in_state(of, ENDING, why)), Caller(CONTROL, why))
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the rehearsal ends") from None
        await self._append(view, changed(in_state(of, RUNNING)), Caller(CONTROL, "its topics are there"))
        log.info("a cluster is rehearsed", cluster=of.cluster_name, topics=len(of.topics), share=of.share)

    async def _delete(self, of: rehearsals.Rehearsal) -> None:
        view = self._journal.view
        cluster = view.state.effective.clusters.get(of.cluster_name)
        if cluster is not None:
            try:
                await self._connections.delete_topics(cluster, [candidate_topic(each.topic) for each in of.topics])
            except UnreachableError as error:
                self._problems[of.rehearsal_id] = f"its topics are not deleted yet: {error}"
                return
        await self._append(view, over(of), Caller(CONTROL, "its topics are deleted"))
        log.info("the rehearsal of a cluster is over", cluster=of.cluster_name)

    async def _settings(self, places: list[Place]) -> Mapping[Place, Mapping[str, str]]:
        clusters = self._journal.view.state.effective.clusters
        found: dict[Place, Mapping[str, str]] = {}
        for name in sorted({place.cluster for place in places}):
            topics = [place.upstream_topic for place in places if place.cluster == name]
            settings = await self._connections.topic_settings(clusters[name], topics)
            found |= {Place(name, topic): settings[topic] for topic in topics}
        return found

    async def _append(
        self, view: MeshView, event: events.RehearsalsChanged, caller: Caller, answer: StoredAnswer | None = None
    ) -> None:
        await self._journal.append(
            [Draft(REHEARSALS, event)],
            caller,
            view,
            rests_on=lambda view: REHEARSAL_POLICY.of(view.state.effective.policies).revision,
            answer=None if answer is None else lambda new, _: answer,
        )
