"""The effect of a call that waits for a second person, in words: what it would decide, and what that would break.

Every command ends in the journal. A *rehearsal* runs the command up to there and takes the events that it would append.
So each call has a plan, also calls that are new to this file. For rules, the plan is the dry run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from mesh.routing.codec import cluster_to_proto
from mesh.rpc import admin, events, proposals
from mesh.wording import short
from services.control.api.edits import command_of
from services.control.api.freeze_gate import options_of
from services.control.api.rule_service import wishes_of
from services.control.decisions.dry_runs.dry_runs import DryRun, DryRuns
from services.control.decisions.past.revisions import Past
from services.control.domain.change_control import schedules
from services.control.domain.change_control.proposals import Plan
from services.control.domain.dry_runs.findings import Severity
from services.control.domain.rules.moves import Move
from services.control.domain.rules.rule_set import RuleSetDecision
from services.control.presentation.sentences import MOST_SENTENCES, Known, sentences
from services.control.store.drafts import PAYLOADS, Draft
from services.control.store.journal import Journal, Rehearsed, is_rehearsal

M = TypeVar("M", bound=Message)
NAME = re.compile(r"\b(?:drains|orders|replays|schedules|topicmoves)/[0-9a-f]{8}\b")
"""Names of things that get a random one: each rehearsal makes another."""
Line = proposals.PlanLine
Behaviour = Callable[[Any, Any], Awaitable[M]]


@dataclass(frozen=True, slots=True)
class Planned(Generic[M]):
    """The plan of a call, or its answer if the call changes nothing."""

    plan: Plan
    answer: M | None = None


class ApprovalPlans:
    """Makes plans. Changes nothing."""

    def __init__(self, journal: Journal, dry_runs: DryRuns, past: Past) -> None:
        self._journal = journal
        self._dry_runs = dry_runs
        self._past = past

    async def of(self, request: Message, behaviour: Behaviour[M]) -> Planned[M]:
        """The plan of a call. Raises the error with which control would refuse the call now."""
        await self._journal.settled()
        wanted: Any = type(request)()
        wanted.CopyFrom(request)
        if hasattr(options_of(wanted), "request_id"):
            options_of(wanted).request_id = ""
        if type(request) in schedules.COMMANDS.values():
            await self._check(wanted, behaviour)
            lines = await self._of_rules(wanted)
            if lines:
                return Planned(Plan(lines))
        found = await _rehearse(behaviour, wanted)
        if isinstance(found, Message):
            return Planned(Plan(()), found)
        lines = [line for draft in found for line in self._of_draft(draft)]
        if isinstance(wanted, admin.ScheduleChangeRequest):
            lines += await self._of_rules(schedules.command_of(wanted.command))
        return Planned(Plan(lines))

    async def _check(self, wanted: Any, behaviour: Behaviour[M]) -> None:
        checked: Any = type(wanted)()
        checked.CopyFrom(wanted)
        checked.options.validate_only = True
        await behaviour(checked, None)

    async def _of_rules(self, request: Any) -> list[Line]:
        """The dry run of a change of the rules; empty if the change changes nothing."""
        wanted: Any = type(request)()
        wanted.CopyFrom(request)
        wanted.options.allow_shadowed = True  # a rule that can never match is a finding like others
        command = command_of(wanted, self._past)
        result = await self._dry_runs.run(
            command, wishes_of(request.options), allow_shadowed=request.options.allow_shadowed
        )
        if result.change.decision.event is None:
            return []
        return list(_of_dry_run(result))

    def _of_draft(self, draft: Draft) -> Iterator[Line]:
        event = events.Event(stream=draft.stream)
        getattr(event, PAYLOADS[type(draft.payload)]).CopyFrom(draft.payload)
        texts = sentences(event, Known(earlier=self._earlier(event)))
        for name in self._new_names(draft):
            texts = [each.replace(short(name), "NEW") for each in texts]
        yield from _lines(texts, draft.payload)

    def _new_names(self, draft: Draft) -> set[str]:
        view = self._journal.view
        known: tuple[Container[str], ...] = (
            view.orders.open, view.orders.ended, view.replays.open, view.replays.ended, view.schedules,
            view.topic_moves.open, view.topic_moves.ended, view.drains.open, view.drains.ended,
        )  # fmt: skip
        found = set(NAME.findall(f"{draft.stream} {draft.payload}"))
        return {name for name in found if not any(name in names for names in known)}

    def _earlier(self, event: events.Event) -> events.Event | None:
        """The thing that an event changes, as it is, in the shape of the event that made it."""
        view = self._journal.view
        match event.WhichOneof("payload"):
            case "cluster_updated":
                cluster = view.state.effective.clusters.get(event.cluster_updated.cluster.spec.cluster_name)
                made = None if cluster is None else events.ClusterRegistered(cluster=cluster_to_proto(cluster))
                return None if made is None else events.Event(cluster_registered=made)
            case "record_rule_updated":
                rule = view.record_rules.get(event.record_rule_updated.rule.record_rule_id)
                if rule is None:
                    return None
                return events.Event(record_rule_created=events.RecordRuleCreated(rule=rule.spec))
            case "subscription_declared":
                known = view.subscriptions.get(event.subscription_declared.subscription.name)
                return known and events.Event(subscription_declared=events.SubscriptionDeclared(subscription=known))
            case _:
                return None


async def _rehearse(behaviour: Behaviour[M], request: Message) -> M | Sequence[Draft]:
    """The drafts that a call would append, or its answer if there are none."""

    async def run() -> M | Sequence[Draft]:
        is_rehearsal.set(True)
        try:
            return await behaviour(request, None)
        except Rehearsed as rehearsed:
            return rehearsed.drafts

    return await asyncio.create_task(run())  # a task has a context of its own


def _of_dry_run(result: DryRun) -> Iterator[Line]:
    decision = result.change.decision
    yield from _lines(_rule_sentences(decision), decision.event or events.RuleSetChanged())
    for move in result.change.moving.moves:
        text = _move_text(move)
        yield Line(text=text, fixed=text)
    for home in result.home_moves:
        what = "group" if home.is_group else "transactional id"
        text = f"{what} {home.name}: coordinator {home.source} -> {home.target}"
        yield Line(text=text, fixed=text)
    for finding in result.findings:
        fixed = "" if finding.severity is Severity.NOTE else f"{finding.kind.value} of {finding.subject}"
        yield Line(text=f"{finding.severity.name.lower()}: {finding.text}", fixed=fixed)
    for each in result.clients:
        who = each.use.identity
        text = f"client {who.client_id or who.address} of gateway {each.use.gateway} uses {', '.join(each.topics)}"
        yield Line(text=text)


def _lines(texts: Sequence[str], payload: Message) -> Iterator[Line]:
    """The sentences of a decision; of a long decision, whose last sentences are left out, the decision as a whole."""
    yield from (Line(text=text, fixed=text) for text in texts)
    if len(texts) > MOST_SENTENCES:
        whole = sha256(payload.SerializeToString(deterministic=True)).hexdigest()
        yield Line(text=f"the whole decision has the SHA-256 {whole}", fixed=whole)


def _rule_sentences(decision: RuleSetDecision) -> list[str]:
    before, after = ([rule.rule_id for rule in table.rules] for table in (decision.before, decision.after))
    known = Known({rule.rule_id: rule for rule in decision.before.rules}, before, after)
    return sentences(events.Event(rule_set_changed=decision.event), known)


def _move_text(move: Move) -> str:
    """ "topic orders moves: c1 -> c2/shop.orders"."""
    places = [
        "no cluster"
        if place is None
        else place.cluster
        if place.upstream_topic == move.topic
        else f"{place.cluster}/{place.upstream_topic}"
        for place in (move.source, move.target)
    ]
    some = " for some clients" if move.client is not None else ""
    return f"topic {move.topic} moves{some}: {' -> '.join(places)}"
