"""Commands about record rules: control asks the clusters, decides, and appends. Routers carry the decision out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mesh.record_rules import STREAM_PREFIX
from mesh.rpc import events
from services.control.decisions.clusters.commands import rules_and_clusters
from services.control.decisions.rules.questions import ClusterQuestions
from services.control.decisions.turns import Turns
from services.control.domain.dry_runs.findings import worst_first
from services.control.domain.dry_runs.profiles import LOOKED_AT, of_profiles
from services.control.domain.errors import InvalidField
from services.control.domain.records.flows import arrivals_of_rule
from services.control.domain.records.needs import TopicNeed, needs_of, needs_of_offsets
from services.control.domain.records.rule_set import RecordRuleSet
from services.control.domain.view import MeshView, apply
from services.control.store.drafts import PAYLOADS, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections

RecordRuleEvent = (
    events.RecordRuleCreated
    | events.RecordRuleUpdated
    | events.RecordRulePaused
    | events.RecordRuleResumed
    | events.RecordRuleRewound
    | events.RecordRuleRemoved
    | events.GroupOffsetsSyncOrdered
)
Command = Callable[[RecordRuleSet], RecordRuleEvent | None]
"""The decision about a rule; None when the rule is already as wanted."""
AnswerRule = Callable[[MeshView, int], StoredAnswer | None]
"""The answer to store for a request_id, given the view after the decision and the position of its event (0: none)."""


@dataclass(frozen=True, slots=True)
class RecordRuleWishes:
    """The options of a change."""

    expected_revision: int = 0
    validate_only: bool = False
    allow_unreachable: bool = False


@dataclass(frozen=True, slots=True)
class RecordRuleChange:
    """The result of a command: the mesh after it (with validate_only: as it would be), and the event's position."""

    after: MeshView
    revision: int
    warnings: Sequence[str] = ()
    """With validate_only: problems that a mirror's target would have with the records."""


class RecordRuleDecisions:
    """Commands about mirrors and content rules."""

    def __init__(self, journal: Journal, turns: Turns, connections: Connections) -> None:
        self._journal = journal
        self._turns = turns
        self._connections = connections

    async def change(
        self, rule_id: str, command: Command, wishes: RecordRuleWishes, caller: Caller, answer: AnswerRule
    ) -> RecordRuleChange:
        """Carries out a command about one rule. A new rule has no revision to compare with."""

        def decided(view: MeshView) -> RecordRuleEvent | None:
            rules = view.record_rule_set
            if wishes.expected_revision:
                rules.expect(rule_id, wishes.expected_revision)
            return command(rules)

        async def decide() -> RecordRuleChange:
            view = await self._journal.first_time(caller)
            event = decided(view)
            drafts = [] if event is None else [Draft(f"{STREAM_PREFIX}{rule_id}", event)]
            if not drafts and not caller.request_id:
                return RecordRuleChange(view, 0)
            new = await self._journal.append(
                drafts, caller, view, rests_on=_basis, answer=lambda new, after: answer(after, _position(new))
            )
            return RecordRuleChange(self._journal.view, _position(new))

        if not wishes.validate_only:
            await self._journal.first_time(caller)
        first = decided(self._journal.view)  # refuses what it can without asking the clusters
        if first is not None:
            await self._look(first, wishes)
        if wishes.validate_only:
            return RecordRuleChange(self._would_be(rule_id, first, caller), 0, await self._warnings(first))
        return await self._turns.take(decide())

    async def _look(self, event: RecordRuleEvent, wishes: RecordRuleWishes) -> None:
        needs = self._needs(event)
        questions = ClusterQuestions(self._connections, allow_unreachable=wishes.allow_unreachable)
        table = self._journal.view.state.effective
        topics = await questions.topics(table, {need.cluster for need in needs}, "topics of the record rule")
        for need in needs:
            problem = need.unmet(topics[need.cluster]) if need.cluster in topics else ""
            if problem:
                raise InvalidField(need.field, problem)

    async def _warnings(self, event: RecordRuleEvent | None) -> list[str]:
        """Warnings from the profiles of the topics that a new mirror copies; none if the target does not answer."""
        if not isinstance(event, events.RecordRuleCreated | events.RecordRuleUpdated):
            return []
        view = self._journal.view
        arrivals = arrivals_of_rule(event.rule, view.state.effective, view.profiles)
        if not arrivals:
            return []
        questions = ClusterQuestions(self._connections, allow_unreachable=True)
        clusters = view.state.effective.clusters
        there = await questions.topics(view.state.effective, {each.place.cluster for each in arrivals}, "targets")
        known = {each.place for each in arrivals if each.place.upstream_topic in there.get(each.place.cluster, ())}
        settings = await questions.settings(clusters, known, LOOKED_AT)
        return [each.text for each in worst_first(of_profiles(arrivals, view.profiles, settings, datetime.now(UTC)))]

    def _needs(self, event: RecordRuleEvent) -> Sequence[TopicNeed]:
        match event:
            case events.RecordRuleCreated() | events.RecordRuleUpdated():
                return needs_of(event.rule)
            case events.RecordRuleRewound():
                rule = self._journal.view.record_rule_set.get(event.record_rule_id)
                return needs_of_offsets("start", rule.spec, event.start)
            case _:
                return ()

    def _would_be(self, rule_id: str, event: RecordRuleEvent | None, caller: Caller) -> MeshView:
        view = self._journal.view
        if event is None:
            return view
        would = events.Event(position=view.position + 1, stream=f"{STREAM_PREFIX}{rule_id}", actor=caller.actor)
        would.time.GetCurrentTime()
        getattr(would, PAYLOADS[type(event)]).CopyFrom(event)
        return apply(view, would)


def _basis(view: MeshView) -> object:
    return rules_and_clusters(view), view.record_rules


def _position(new: Sequence[events.Event]) -> int:
    return new[0].position if new else 0
