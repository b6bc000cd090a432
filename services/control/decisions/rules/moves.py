"""The moves of a rule change and their effects: control asks all clusters concerned at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from mesh.routing import Place, RoutingTable
from mesh.rpc import events
from services.control.decisions.rules.questions import ClusterQuestions
from services.control.domain.errors import NotAllowed
from services.control.domain.rules.covers import Cover, covers, suspicions
from services.control.domain.rules.effects import (
    Effect,
    Fate,
    OffsetKeepers,
    effects_of,
    places_of_danger,
    refuse_skips,
)
from services.control.domain.rules.kinds import kinds_of_clients
from services.control.domain.rules.moves import (
    Checked,
    Move,
    MovePlan,
    checked,
    clusters_that_may_lose,
    refuse_absent,
    refuse_narrow,
)
from services.control.domain.rules.rule_set import RuleSetDecision
from services.control.domain.stitches.logs import refuse_switches
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChangeWishes:
    """The options of a change (ChangeOptions of the contract)."""

    expected_revision: int = 0
    validate_only: bool = False
    create_missing_topics: bool = False
    allow_unreachable: bool = False
    accept_skip: bool = False
    without_members: frozenset[str] = frozenset()
    """Gateways that do not answer; topics move without them."""
    canary: events.Canary | None = None
    """The gateways that try the change first."""
    stitched_topic: str = ""
    """The topic whose log goes on at its new place, with a part there."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Topics that move, those of them whose target can't take them as it is, and the effects on their readers."""

    moves: Sequence[Move] = ()
    checked: Checked = field(default_factory=Checked)
    effects: Sequence[Effect] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    """Clusters that control asked in vain, with the reason: the state of their topics is unknown."""
    unseen: int = 0
    """The least number of kinds of clients whose moves control did not check, because there are too many kinds."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about clients whose moves control did not check."""
        if not self.unseen:
            return []
        return [f"rules ask so much of clients that moves were not looked at for {self.unseen} kinds of them, or more"]

    @property
    def absent(self) -> Sequence[Move]:
        """Moves whose target lacks the topic, so that control has to create it."""
        return self.checked.absent


class MoveInspector:
    """Reads clusters for decisions about moves. `never_move`: topics of the mesh's own log, which no rule moves."""

    def __init__(self, connections: Connections, never_move: Sequence[str]) -> None:
        self._connections = connections
        self._never_move = never_move

    async def look(self, decision: RuleSetDecision, wishes: ChangeWishes) -> Moving:
        """The moves of the decision; refused when a target can't take a topic, or when readers would miss records."""
        moving = await self.survey(decision, wishes)
        refuse_switches(decision.before, {move.topic for move in moving.moves}, wishes.stitched_topic)
        refuse_narrow(moving.checked)
        if not wishes.create_missing_topics:
            refuse_absent(moving.checked)
        if not wishes.accept_skip and not wishes.validate_only:
            refuse_skips(moving.effects)
        return moving

    async def survey(self, decision: RuleSetDecision, wishes: ChangeWishes) -> Moving:
        """The moves of the decision, possible or not; refused when a cluster does not answer, unless allowed."""
        questions = ClusterQuestions(self._connections, allow_unreachable=wishes.allow_unreachable)
        before, after = decision.before, decision.after
        losing = clusters_that_may_lose(before, after)
        topics = await questions.topics(before, losing, "topics that may move away from it")
        kinds = kinds_of_clients(before, after)
        plan = MovePlan(before, after, topics, never=self._never_move)
        for kind in kinds.looked_at:
            plan.look_at(kind)
            await asyncio.sleep(0)  # a kind may take a second with all topics of large clusters; other calls wait, too
        moves = plan.moves
        if not moves:
            return Moving(silent=questions.silent, unseen=kinds.left_out)
        targets = {move.target.cluster for move in moves if move.target is not None}
        topics |= await questions.topics(after, targets - topics.keys(), "topics that move to it")
        effects = await self._effects(decision, moves, topics, wishes, questions)
        if questions.silent and not wishes.validate_only:
            log.warning("rules change although clusters do not answer", clusters=questions.silent)
        return Moving(moves, checked(moves, topics), effects, questions.silent, kinds.left_out)

    async def covers(self, decision: RuleSetDecision) -> list[Cover]:
        """Rules that the change leaves without a topic, because an expression comes first.

        Only topics of clusters that answer in time count.
        """
        suspected = suspicions(decision.before, decision.after)
        if not suspected:
            return []
        questions = ClusterQuestions(self._connections, allow_unreachable=True)
        topics = await questions.topics(decision.after, decision.after.clusters, "topics that expressions match")
        return covers(suspected, decision.before, topics)

    async def create(self, table: RoutingTable, absent: Sequence[Move]) -> None:
        """Creates topics on their targets, with the settings of their sources."""
        by_pair: dict[tuple[str, str], list[tuple[Place, Place, int]]] = {}
        for move in absent:
            if move.target is not None:
                pair = (move.source.cluster, move.target.cluster)
                by_pair.setdefault(pair, []).append((move.source, move.target, move.partitions))
        for (source, target), places in by_pair.items():
            names = [there.upstream_topic for _, there, _ in places]
            try:
                settings = await self._connections.topic_settings(
                    table.clusters[source], [here.upstream_topic for here, _, _ in places]
                )
                wanted = {
                    there.upstream_topic: (partitions, settings[here.upstream_topic])
                    for here, there, partitions in places
                }
                await self._connections.create_topics(table.clusters[target], wanted)
            except UnreachableError as error:
                raise NotAllowed(
                    "TOPIC_NOT_CREATED",
                    f"clusters/{target}",
                    f"topics {', '.join(names)} could not be created on {target!r}: {error}; "
                    "create them there, then retry",
                ) from None
            log.info("created topics", topics=names, source=source, target=target)

    async def _effects(
        self,
        decision: RuleSetDecision,
        moves: Sequence[Move],
        topics: Mapping[str, Mapping[str, int]],
        wishes: ChangeWishes,
        questions: ClusterQuestions,
    ) -> list[Effect]:
        """A dry run gives all effects on groups; the change itself asks for groups only where a group may be harmed."""
        if wishes.accept_skip and not wishes.validate_only:
            return []
        clusters = {**decision.before.clusters, **decision.after.clusters}
        logs = await questions.logs(clusters, moves, topics)
        asked = places_of_danger(moves, logs)
        if wishes.validate_only:
            asked = {move.source for move in moves if any(log.end for log in logs.get(move.source, {}).values())}
        keepers = OffsetKeepers(decision.before)
        places = {place for move in moves if move.source in asked for place in keepers.places(move)}
        positions = await questions.positions(clusters, places, None)
        effects = effects_of(moves, keepers, logs, positions, {})
        # a group that seems to skip may have read the new log up to this place before: its offsets there show it
        skips = [
            effect
            for effect in effects
            if effect.fate is Fate.SILENT_SKIP and keepers.home_of(effect.group, effect.move.client) is None
        ]
        if not skips:
            return effects
        targets = {effect.move.target for effect in skips if effect.move.target is not None}
        there = await questions.positions(clusters, targets, {effect.group for effect in skips})
        return effects_of(moves, keepers, logs, positions, there)
