"""The effects of a set of edits, reported without deciding anything: all of them at once, also the refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from mesh.routing import RoutingTable
from services.control.decisions.members.members import Members
from services.control.decisions.rules.commands import Command, RuleChange
from services.control.decisions.rules.moves import ChangeWishes, MoveInspector, Moving
from services.control.decisions.rules.questions import ClusterQuestions
from services.control.domain.dry_runs.findings import (
    COMPARED,
    Finding,
    of_covers,
    of_groups,
    of_offset_keepers,
    of_places,
    of_readers_fates,
    of_settings,
    of_shadows,
    of_silence,
    of_transactions,
    of_unlisted,
    worst_first,
)
from services.control.domain.dry_runs.profiles import arrivals_of_moves, of_profiles
from services.control.domain.dry_runs.traffic import TopicTraffic, of_traffic
from services.control.domain.members.usage import Affected, ClientUse, HomeMove, affected, home_moves
from services.control.domain.rules.moves import Move
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import Journal
from services.control.store.traffic import TrafficTables
from services.control.upstream.connections import Connections

CLIENTS_PER_TURN = 50
"""Kinds of clients checked in a row, each with up to 100 topics."""
TRAFFIC_WITHIN = 1.0
"""Seconds to read the traffic of the topics that move: it is good to know, but the dry run goes on without it."""


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run."""

    change: RuleChange
    findings: Sequence[Finding]
    clients: Sequence[Affected]
    home_moves: Sequence[HomeMove]


class DryRuns:
    """Asks the same rule set and clusters as a change does, and refuses only edits that are wrong in any mesh."""

    def __init__(
        self,
        journal: Journal,
        connections: Connections,
        members: Members,
        traffic: TrafficTables,
        never_move: Sequence[str],
    ) -> None:
        self._journal = journal
        self._traffic = traffic
        self._connections = connections
        self._members = members
        self._inspector = MoveInspector(connections, never_move)

    async def run(self, command: Command, wishes: ChangeWishes, *, allow_shadowed: bool) -> DryRun:
        """Makes the dry run. `command` takes rules that never match; `allow_shadowed`: whether the change would."""
        view = self._journal.view
        rule_set = view.rule_set
        rule_set.expect(wishes.expected_revision)
        decision = await command(rule_set)
        before, after = decision.before, decision.after
        told = replace(wishes, validate_only=True, allow_unreachable=True)
        moving = await self._inspector.survey(decision, told) if decision.event is not None else Moving()
        questions = ClusterQuestions(self._connections, allow_unreachable=True)
        clusters = {**before.clusters, **after.clusters}
        places = {place for move in moving.moves for place in (move.source, move.target) if place is not None}
        absent = {move.target for move in moving.absent}
        settings = await questions.settings(clusters, places - absent, COMPARED)
        readers = await questions.readers(clusters[name] for name in _concerned(before, after, moving.moves))
        uses = self._members.uses()
        findings = [
            *of_places(moving.moves, moving.checked, create_missing=wishes.create_missing_topics),
            *of_settings(moving.moves, settings),
            *of_readers_fates(moving.effects, accepted=wishes.accept_skip),
            *of_groups(before, after, moving.moves, readers, uses),
            *of_offset_keepers(before, after, moving.moves, readers, uses),
            *of_transactions(before, after, uses),
            *of_shadows(before, after, accepted=allow_shadowed),
            *of_covers(await self._inspector.covers(decision)),
            *of_profiles(arrivals_of_moves(moving.moves), self._journal.view.profiles, settings, datetime.now(UTC)),
            *of_traffic(moving.moves, await self._lately(moving.moves)),
            *of_silence({**questions.silent, **moving.silent}),
            *of_unlisted(self._members.unlisted() if decision.event is not None else ()),
        ]
        return DryRun(
            RuleChange(rule_set.revision, decision, view, moving, warnings=moving.warnings),
            worst_first(findings),
            await touched(before, after, uses),
            home_moves(before, after, readers, uses),
        )

    async def _lately(self, moves: Sequence[Move]) -> Mapping[str, TopicTraffic]:
        """The traffic of the topics; empty if it is not known, for whatever reason, or not within the time-out."""
        try:
            async with asyncio.timeout(TRAFFIC_WITHIN):
                return await self._traffic.lately(move.topic for move in moves)
        except (StoreUnavailableError, TimeoutError) as error:
            log.info("a dry run does without traffic", reason=str(error))
            return {}


async def touched(before: RoutingTable, after: RoutingTable, uses: Sequence[ClientUse]) -> list[Affected]:
    """As `affected`, for some clients after the others: a mesh has thousands, and other calls want answers, too."""
    found: list[Affected] = []
    for first in range(0, len(uses), CLIENTS_PER_TURN):
        found += affected(before, after, uses[first : first + CLIENTS_PER_TURN])
        await asyncio.sleep(0)
    return found


def _concerned(before: RoutingTable, after: RoutingTable, moves: Sequence[Move]) -> set[str]:
    """Clusters whose groups control has to know: all, as a group that reads a moving topic may read others anywhere."""
    return set(before.clusters) & set(after.clusters) if moves or before.rules != after.rules else set()
