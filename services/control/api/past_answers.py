"""Answers about the past: its history, the mesh as of a revision or a time, and what differs between two revisions."""

from __future__ import annotations

import re
from datetime import UTC

from mesh.instance_names import INSTANCES
from mesh.rpc import admin
from services.control.api import pages, shapes
from services.control.decisions.past.history import Before, History
from services.control.decisions.past.revisions import Past
from services.control.decisions.rules.questions import ClusterQuestions
from services.control.domain.errors import InvalidField
from services.control.domain.past.history import Entry
from services.control.domain.past.revisions import Differences, Moved, differences, moved_topics
from services.control.domain.view import POLICIES, RULES_STREAM, MeshView
from services.control.store.journal import Journal
from services.control.store.reports import Reports
from services.control.upstream.connections import Connections

PLACE = re.compile(r"(\d+) (\d*)")
"""In the history of an instance: a position of the log, and the number of a report."""
FIRST_TIME, LAST_TIME = -62_135_596_800, 253_402_300_799
"""Seconds of the first and the last moment that a google.protobuf.Timestamp can be."""


class PastAnswers:
    """The answers of QueryService about the past."""

    def __init__(self, journal: Journal, past: Past, reports: Reports, connections: Connections) -> None:
        self._journal = journal
        self._past = past
        self._history = History(past.store, reports)
        self._connections = connections

    async def history(self, request: admin.ListHistoryRequest) -> admin.ListHistoryResponse:
        self._journal.require_loaded()
        size = pages.page_size(request.page_size)
        if request.name.startswith(INSTANCES):
            return await self._history_of_instance(request, size)
        listing = f"history {request.name or request.topic}"
        below = pages.number_of(listing, request.page_token) or self._journal.view.position + 1
        match request.WhichOneof("about"):
            case "topic":
                shapes.check_topic(request.topic)
                entries, left = await self._history.of_topic(request.topic, below, size)
            case "name" if request.name.startswith(f"{RULES_STREAM}/"):
                rule_id = shapes.id_of(RULES_STREAM, request.name)
                entries, left = await self._history.of_rule(rule_id, below, size)
            case "name":
                entries, left = await self._history.of_stream(_stream(request.name), below, size)
            case _:
                entries, left = await self._history.of_stream("", below, size)
        return admin.ListHistoryResponse(
            entries=[_entry(each) for each in entries], next_page_token=pages.token(listing, left) if left else ""
        )

    async def _history_of_instance(self, request: admin.ListHistoryRequest, size: int) -> admin.ListHistoryResponse:
        name = _stream(request.name)
        listing = f"history {name}"
        before = Before(self._journal.view.position + 1)
        place = pages.place_of(listing, request.page_token)
        if isinstance(place, str) and (parts := PLACE.fullmatch(place)):
            before = Before(int(parts[1]), int(parts[2]) if parts[2] else None)
        entries, left = await self._history.of_instance(name, before, size)
        return admin.ListHistoryResponse(
            entries=[_entry(each) for each in entries],
            next_page_token="" if left is None else pages.token(listing, f"{left.position} {left.sequence or ''}"),
        )

    async def as_of(self, request: admin.GetAsOfRequest) -> admin.MeshAsOf:
        self._journal.require_loaded()
        match request.WhichOneof("at"):
            case "revision":
                revision = request.revision
            case "time" if FIRST_TIME <= request.time.seconds <= LAST_TIME:
                revision = await self._past.revision_at(request.time.ToDatetime(UTC))
            case "time":
                raise InvalidField("time", "is no time between the years 1 and 9999")
            case _:
                raise InvalidField("at", "say when: a revision or a time")
        view = await self._past.view_at(revision)
        response = admin.MeshAsOf(
            revision=revision,
            clusters=[shapes.cluster(view, name) for name in view.state.effective.clusters],
            rules=shapes.rules(view),
            record_rules=[
                shapes.record_rule(view.record_rules[name], None) for name in sorted(view.record_rule_set.rules)
            ],
            frozen=view.frozen is not None,
        )
        time = await self._past.time_of(revision)
        if time is not None:
            response.time.FromDatetime(time)
        return response

    async def diff(self, request: admin.DiffRequest) -> admin.DiffResponse:
        self._journal.require_loaded()
        to_revision = request.to_revision or self._journal.view.position
        before = await self._past.view_at(request.from_revision, "from_revision")
        after = await self._past.view_at(to_revision, "to_revision")
        found = differences(before, after)
        response = admin.DiffResponse(from_revision=request.from_revision, to_revision=to_revision)
        _show(response, before, after, found)
        if found.rules:
            moved, silent = await self._moved(before, after)
            response.moves.extend(map(shapes.topic_move, moved))
            response.unreachable.extend(silent)
        return response

    async def _moved(self, before: MeshView, after: MeshView) -> tuple[list[Moved], list[str]]:
        """The topics that moved, and the clusters that do not list their topics; removed clusters are among them."""
        now = self._journal.view.state.effective
        names = {**before.state.effective.clusters, **after.state.effective.clusters}
        questions = ClusterQuestions(self._connections, allow_unreachable=True)
        topics = await questions.topics(now, names.keys() & now.clusters.keys(), "topics")
        moved = moved_topics(before.state.effective, after.state.effective, topics)
        return moved, sorted(names.keys() - topics.keys())


WITH_HISTORY = (
    "access", "clusters", "recordrules", "instances", "members", "pipelines", "schedules", "replays", "users",
    "subscriptions", "topicowners",
)  # fmt: skip
"""Collections of resources that have decisions in the log, beside rules."""


def _stream(name: str) -> str:
    """The stream that holds the decisions about a resource."""
    if name in POLICIES:
        return name
    collection, _, identifier = name.partition("/")
    if collection not in WITH_HISTORY or not identifier:
        raise InvalidField(
            "name",
            f"{name!r} has no history: ask for rules/ID, clusters/NAME, recordrules/ID, acls, quotas, validation or "
            "tenants, protection, listeners, or for a topic",
        )
    return name


def _entry(of: Entry) -> admin.HistoryEntry:
    return shapes.history_entry(of.event, of.changes, of.outcome, of.place)


def _show(response: admin.DiffResponse, before: MeshView, after: MeshView, found: Differences) -> None:
    old_rules, new_rules = ({rule.spec.rule_id: rule for rule in shapes.rules(view)} for view in (before, after))
    for rule_id in found.rules:
        response.rules.add(before=old_rules.get(rule_id), after=new_rules.get(rule_id))
    for name in found.clusters:
        was, now = (
            shapes.cluster(view, name) if name in view.state.effective.clusters else None for view in (before, after)
        )
        response.clusters.add(before=was, after=now)
    for name in found.record_rules:
        old, new = (
            shapes.record_rule(view.record_rules[name], None) if name in view.record_rules else None
            for view in (before, after)
        )
        response.record_rules.add(before=old, after=new)
