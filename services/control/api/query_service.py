"""QueryService: explains routing, lists the log, and shows the present state. From memory where possible."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC
from typing import Any

from mesh.routing import ForwardingRule, Place, RoutingTable, Subject, UpstreamCluster
from mesh.routing.codec import client_from_proto, node_view_to_proto
from mesh.rpc import admin, admin_grpc, events
from services.control.api import pages, shapes
from services.control.api.past_answers import PastAnswers
from services.control.decisions.clusters.probes import Probes
from services.control.decisions.members.members import Members
from services.control.decisions.records.progress import RecordProgress
from services.control.domain.errors import InvalidField
from services.control.domain.rules.moves import located
from services.control.presentation.explanations import tried_rules, why_unrouted, without_rule
from services.control.store.audit import AuditTrail, Wanted
from services.control.store.journal import Journal
from services.control.store.outbox import Publisher
from services.control.store.reports import Reports
from services.control.upstream.connections import Connections, UnreachableError


class QueryService(admin_grpc.QueryServiceServicer):
    """See QueryService in admin.proto."""

    def __init__(
        self,
        journal: Journal,
        reports: Reports,
        members: Members,
        probes: Probes,
        publisher: Publisher,
        audit: AuditTrail,
        record_progress: RecordProgress,
        connections: Connections,
        past: PastAnswers,
        problems: Callable[[], list[str]],
    ) -> None:
        self._problems = problems
        self._connections = connections
        self._past = past
        self._audit = audit
        self._record_progress = record_progress
        self._journal = journal
        self._reports = reports
        self._members = members
        self._probes = probes
        self._publisher = publisher

    async def Explain(self, request: admin.ExplainRequest, context: Any) -> admin.ExplainResponse:
        self._journal.require_loaded()
        subject = Subject(request.WhichOneof("about") or "topic")
        name = getattr(request, subject.value)
        _check_name(subject, name)
        view = self._journal.view
        table = view.state.effective
        by_name = {rule.spec.rule_id: rule for rule in shapes.rules(view)}
        response = admin.ExplainResponse(topic=request.topic, revision=table.revision)
        client = client_from_proto(request.client)
        tried = tried_rules(table, subject, name, client)
        for each in tried:
            response.tried.add(rule=by_name[each.rule.rule_id], matched=each.matched, reason=each.reason)
        if view.rollout is not None:
            response.notes.append(f"a change of the rules (revision {view.rollout.position}) is being rolled out")
        decisive = tried[-1].rule if tried and tried[-1].matched else None
        if subject is Subject.TOPIC:
            await self._explain_topic(response, table.for_client(client), name, decisive)
        elif decisive is None:
            response.notes.append(without_rule(table, subject))
        elif subject is not Subject.CLIENT_SOFTWARE and decisive.target_cluster not in table.clusters:
            response.notes.append(f"cluster {decisive.target_cluster!r} is not registered: the rule counts as none")
        else:
            response.cluster, response.node_view = decisive.target_cluster, node_view_to_proto(decisive.node_view)
        return response

    async def _explain_topic(
        self, response: admin.ExplainResponse, table: RoutingTable, topic: str, decisive: ForwardingRule | None
    ) -> None:
        route = table.route(topic)
        if route is None:
            response.notes.append(why_unrouted(table, topic, decisive))
            return
        response.cluster, response.visit, response.upstream_topic = route.cluster, route.visit, route.upstream_topic
        cluster = table.clusters[route.cluster]
        try:
            partitions = await self._connections.partitions_of(cluster, route.upstream_topic)
        except UnreachableError as error:
            response.notes.append(f"partitions are not known: {error}")
            return
        if partitions is None:
            where = located(topic, Place(route.cluster, route.upstream_topic))
            response.notes.append(f"the topic does not exist {where}")
            return
        response.partitions = partitions
        await self._show_partitions(response, cluster, route.upstream_topic)

    async def _show_partitions(
        self, response: admin.ExplainResponse, cluster: UpstreamCluster, upstream_topic: str
    ) -> None:
        """The present leaders and offsets. If a cluster does not answer, the explanation goes on without them."""
        try:
            live = await self._connections.live_partitions(cluster, upstream_topic)
        except UnreachableError as error:
            response.notes.append(f"leaders and offsets are not known: {error}")
            return
        for each in live:
            response.live_partitions.add(partition=each.number, leader=each.leader, start=each.start, end=each.end)
        if response.partitions > len(live):
            response.notes.append(f"leaders and offsets of the first {len(live)} partitions only")

    async def ListEvents(self, request: admin.ListEventsRequest, context: Any) -> admin.ListEventsResponse:
        self._journal.require_loaded()
        size = pages.page_size(request.page_size)
        listing = f"events {request.stream}"
        below = pages.number_of(listing, request.page_token)
        found = self._from_memory(below, request.stream, size + 1)
        if found is None:
            found = await self._journal.store.before(below, request.stream, size + 1)
        token = pages.token(listing, found[size - 1].position) if len(found) > size else ""
        return admin.ListEventsResponse(events=found[:size], next_page_token=token)

    def _from_memory(self, below: int | None, stream: str, limit: int) -> list[events.Event] | None:
        """The events, newest first; None when memory does not reach back far enough to be sure."""
        recent = self._journal.recent
        found: list[events.Event] = []
        for event in reversed(recent):
            if (below is None or event.position < below) and (not stream or event.stream == stream):
                found.append(event)
                if len(found) == limit:
                    return found
        return found if recent.first in (None, 1) else None

    async def ListHistory(self, request: admin.ListHistoryRequest, context: Any) -> admin.ListHistoryResponse:
        return await self._past.history(request)

    async def GetAsOf(self, request: admin.GetAsOfRequest, context: Any) -> admin.MeshAsOf:
        return await self._past.as_of(request)

    async def Diff(self, request: admin.DiffRequest, context: Any) -> admin.DiffResponse:
        return await self._past.diff(request)

    async def ListAuditEvents(
        self, request: admin.ListAuditEventsRequest, context: Any
    ) -> admin.ListAuditEventsResponse:
        size = pages.page_size(request.page_size)
        since = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else None
        wanted = Wanted(request.actor, request.refused_only, since)
        if request.HasField("after"):
            if request.page_token:
                raise InvalidField("page_token", "does not go with after: go on with the number of the last event")
            found = await self._audit.after(request.after, size, wanted)
            return admin.ListAuditEventsResponse(audit_events=found)
        listing = f"audit events {request.actor} {request.refused_only} {since}"
        below = pages.number_of(listing, request.page_token)
        found = await self._audit.before(below, size + 1, wanted)
        token = pages.token(listing, found[size - 1].sequence) if len(found) > size else ""
        return admin.ListAuditEventsResponse(audit_events=found[:size], next_page_token=token)

    async def WatchEvents(self, request: admin.WatchEventsRequest, context: Any) -> AsyncIterator[events.Event]:
        """A watcher has a place in the log, not a queue: a slow watcher costs nothing and continues from its place."""
        self._journal.require_loaded()
        if request.from_position < 0:
            raise InvalidField("from_position", f"{request.from_position} is negative; 0 means from now on")
        seen = request.from_position - 1 if request.from_position else self._journal.view.position
        while True:
            page = self._journal.since(seen)
            if page is None:
                page = await self._journal.store.after(seen)
            for event in page:
                yield event
                seen = event.position
            if not page:
                await self._journal.grown_beyond(seen)

    async def GetStatus(self, request: admin.GetStatusRequest, context: Any) -> admin.MeshStatus:
        self._journal.require_loaded()
        view = self._journal.view
        return admin.MeshStatus(
            revision=view.state.effective.revision,
            pending_revision=view.rollout.position if view.rollout else 0,
            last_position=view.position,
            published_position=self._publisher.position,
            problems=self._problems(),
            members=self._members.all(),
            clusters=[shapes.cluster(view, name, self._probes.last(name)) for name in view.state.effective.clusters],
            instances=[instance for _, instance in sorted(self._reports.known.instances.items())],
            frozen=None if view.frozen is None else shapes.history_entry(view.frozen, ["changes are refused"]),
            scheduled_changes=len(view.schedules),
            record_rules=[
                shapes.record_rule(view.record_rules[rule_id], self._record_progress)
                for rule_id in sorted(view.record_rule_set.rules)
            ],
        )


def _check_name(subject: Subject, name: str) -> None:
    if not name:
        raise InvalidField(
            subject.value, "is empty; say what to explain: a topic, a group, a transactional id, a client"
        )
    if subject is Subject.TOPIC:
        shapes.check_topic(name)
