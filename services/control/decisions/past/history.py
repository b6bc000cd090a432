"""The history of everything, or of a rule, a cluster, a record rule or a topic: decisions from PostgreSQL, in words."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mesh.routing import ForwardingRule, RuleVersion, is_pending
from mesh.rpc import events
from mesh.rpc import reports as reports_pb
from services.control.domain.past.history import Entry, homes_at, homes_if, turning_points
from services.control.presentation.sentences import MOST_SENTENCES, Known, place_text, sentences
from services.control.store.past import Outcome, PastStore
from services.control.store.reports import Reports

WINDOW = 2000
"""Versions of rules that control reads in one go for a topic's history."""
MOST_WINDOWS = 10
"""Windows for one page; a topic that rules hardly moved gets a short page, and a token for the next page."""
MOST_ORDERS = 50
"""Decisions of one page that name the rules' places in the order; other decisions only say that a rule was moved."""
MOST_UNCOUNTED = 100
"""Pending or aborted changes that one page checks."""

Page = tuple[list[Entry], int]
"""Entries, newest first, and the position below which the next page begins; 0 on the last page."""


@dataclass(frozen=True, slots=True)
class Before:
    """The start of the next page of an instance's history: below this log position, and below this report number."""

    position: int
    sequence: int | None = None
    """None: at the last report."""


class History:
    """Shows the decisions of control."""

    def __init__(self, store: PastStore, reports: Reports) -> None:
        self._store = store
        self._reports = reports

    async def of_stream(self, stream: str, below: int, size: int) -> Page:
        """The decisions in a stream (in all streams, when empty) below a position."""
        found = await self._store.decisions_before(below, stream, size + 1)
        entries = await self._told(found[:size])
        return entries, found[size - 1].position if len(found) > size else 0

    async def of_instance(self, name: str, before: Before, size: int) -> tuple[list[Entry], Before | None]:
        """The decisions about an instance and the reports of sidecars about it, newest first.

        Also returns the start of the next page; None on the last page.
        """
        decided = [
            (each, replace(before, position=each.position))
            for each in await self._store.decisions_before(before.position, name, size + 1)
        ]
        reported = [
            (_as_event(each), replace(before, sequence=each.sequence))
            for each in await self._reports.before(name, before.sequence, size + 1)
        ]
        found = list(heapq.merge(decided, reported, key=lambda each: each[0].time.ToNanoseconds(), reverse=True))
        entries = await self._told([event for event, _ in found[:size]])
        if len(found) <= size:
            return entries, None
        for _, at in found[:size]:
            before = Before(min(before.position, at.position), _lower(before.sequence, at.sequence))
        return entries, before

    async def of_rule(self, rule_id: str, below: int, size: int) -> Page:
        """The decisions about one rule; each entry says only what changed for this rule."""
        versions = await self._store.versions_of(rule_id, below, size + 1)
        revisions = {each.from_revision for each in versions}
        revisions |= {each.until_revision for each in versions if each.until_revision and each.until_revision < below}
        low = versions[-1].from_revision if len(versions) > size else 0
        uncounted = await self._store.uncounted(low + 1, below, MOST_UNCOUNTED)
        found = await self._store.events_at({*revisions, *uncounted})
        about = [event for event in found.values() if rule_id in _rules_of(event)]
        newest = sorted(about, key=lambda event: event.position, reverse=True)
        page = newest[:size]
        entries = await self._told([_only_about(event, rule_id) for event in page])
        return entries, page[-1].position if len(newest) > size else 0

    async def of_topic(self, topic: str, below: int, size: int) -> Page:
        """The decisions that changed the place of a topic, or would have changed it."""
        entries: list[Entry] = []
        for _ in range(MOST_WINDOWS):
            low, versions = await self._store.versions_about(topic, below, WINDOW)
            entries += await self._about_topic(topic, versions, low, below)
            if len(entries) > size:
                return entries[:size], entries[size - 1].event.position
            if not low:
                return entries, 0
            below = low + 1
        return entries, below

    async def _about_topic(self, topic: str, versions: list[RuleVersion], low: int, below: int) -> list[Entry]:
        places = dict(turning_points(versions, topic, low, below))
        uncounted = await self._store.uncounted(low + 1, below, MOST_UNCOUNTED)
        found = await self._store.events_at({*places, *uncounted})
        pairs = [(rule_id, at) for at in uncounted for rule_id in _rules_of(found[at])]
        befores = await self._store.rules_before(pairs)
        for at in uncounted:
            concerned = {version.rule.rule_id: version for version in versions if version.counts_at(at)}
            concerned |= {rule_id: version for (rule_id, then), version in befores.items() if then == at}
            here = homes_at(versions, topic, at)
            if homes_if(list(map(_living, concerned.values())), topic, at, found[at].rule_set_changed) != here:
                places[at] = here
        told = await self._told([found[at] for at in sorted(places, reverse=True)])
        return [replace(entry, place=place_text(places[entry.event.position], topic)) for entry in told]

    async def _told(self, found: Sequence[events.Event]) -> list[Entry]:
        changes = [event for event in found if event.HasField("rule_set_changed")]
        outcomes = await self._store.outcomes([event.position for event in changes])
        rules = await self._rules_before(changes)
        orders = await self._orders(changes)
        specs = await self._store.earlier_specs((event.stream, event.position) for event in found if _updates(event))
        entries: list[Entry] = []
        for event in found:
            at = event.position
            known = Known(rules.get(at, {}), orders.get(at - 1, ()), orders.get(at, ()), specs.get((event.stream, at)))
            entries.append(Entry(event, tuple(sentences(event, known)), _outcome(event, outcomes.get(at))))
        return entries

    async def _rules_before(self, changes: Sequence[events.Event]) -> dict[int, dict[str, ForwardingRule]]:
        pairs = [
            (_rule_of(change), event.position)
            for event in changes
            for change in event.rule_set_changed.changes[:MOST_SENTENCES]
        ]
        found: dict[int, dict[str, ForwardingRule]] = {}
        for (rule_id, revision), version in (await self._store.rules_before(pairs)).items():
            found.setdefault(revision, {})[rule_id] = version.rule
        return found

    async def _orders(self, changes: Sequence[events.Event]) -> Mapping[int, list[str]]:
        moving = [event.position for event in changes if any(each.moved for each in event.rule_set_changed.changes)]
        wanted = {revision for position in moving[:MOST_ORDERS] for revision in (position - 1, position)}
        return await self._store.orders_at(wanted) if wanted else {}


def _as_event(report: reports_pb.Report) -> events.Event:
    """The event that an earlier release wrote into the log for such a report; it has no position there."""
    event = events.Event(stream=report.name, time=report.time, actor=report.actor)
    kind = report.WhichOneof("payload")
    if kind is not None:
        getattr(event, kind).CopyFrom(getattr(report, kind))
    return event


def _lower(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _rules_of(event: events.Event) -> set[str]:
    """Ids of the rules that a change of the rules is about."""
    return {_rule_of(change) for change in event.rule_set_changed.changes}


def _rule_of(change: events.RuleChange) -> str:
    match change.WhichOneof("kind"):
        case "created":
            return change.created.rule_id
        case "updated":
            return change.updated.rule_id
        case "moved":
            return change.moved
        case _:
            return change.removed


def _only_about(event: events.Event, rule_id: str) -> events.Event:
    own = [change for change in event.rule_set_changed.changes if _rule_of(change) == rule_id]
    shown = events.Event()
    shown.CopyFrom(event)
    del shown.rule_set_changed.changes[:]
    shown.rule_set_changed.changes.extend(own)
    return shown


def _updates(event: events.Event) -> bool:
    return event.WhichOneof("payload") in ("cluster_updated", "record_rule_updated", "subscription_declared")


def _living(version: RuleVersion) -> RuleVersion:
    return replace(version, until_revision=None)


def _outcome(event: events.Event, outcome: Outcome | None) -> str:
    """The outcome of a rollout, as text; empty if the decision had no rollout."""
    changed = event.rule_set_changed
    if outcome is None or not is_pending(changed):
        return ""
    return f"{outcome.state}: {outcome.cause}" if outcome.cause else outcome.state
