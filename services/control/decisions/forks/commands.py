"""Forks: control finds the end of the past, creates the topic, and leads clients to its log; or deletes all of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import structlog

from mesh.routing import ExactName, Place, RoutingTable
from mesh.routing.codec import TABLE_FORMAT_OF_FORKS
from mesh.rpc import stitches, topics
from services.control.decisions.rules.commands import RuleChange, RuleDecisions
from services.control.decisions.rules.moves import ChangeWishes
from services.control.decisions.topic_moves.preparation import Preparation
from services.control.decisions.topics.looking import Looking
from services.control.domain.errors import Exists, Refusal, Unavailable
from services.control.domain.log_ranges import LogRange
from services.control.domain.rules import edits
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.stitches.forks import (
    check_offsets,
    check_wanted,
    fork_of,
    fork_to_delete,
    forked,
    own_topics,
    past_of,
)
from services.control.domain.stitches.logs import STITCHES, ended, identify, unidentified
from services.control.domain.topic_moves.moves import Side, check_sides, refuse_differing, refuse_moving
from services.control.domain.view import MeshView
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)


class ForkDecisions:
    """The decisions that make a fork and end it."""

    def __init__(
        self,
        journal: Journal,
        rules: RuleDecisions,
        connections: Connections,
        preparation: Preparation,
        looking: Looking,
    ) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._rules = rules
        self._connections = connections
        self._preparation = preparation
        self._looking = looking

    async def fork(
        self,
        wanted: topics.ForkTopicRequest,
        caller: Caller,
        answer: Callable[[topics.TopicFork], StoredAnswer | None],
    ) -> topics.TopicFork:
        """Makes the fork. If its rule is refused, its log leaves again."""
        view = await self._journal.first_time(caller)
        table = view.state.effective
        check_wanted(table, wanted)
        for topic in (wanted.source_topic, wanted.topic):
            refuse_differing(table, topic)
            refuse_moving(view.topic_moves, topic)
        self._preparation.check_understood(TABLE_FORMAT_OF_FORKS)
        made = _rule_of(wanted)(view.rule_set).after.route(wanted.topic)
        assert made is not None, "the rule leads the fork to its cluster"
        try:
            here = await self._check_sides(table, wanted)
            past = past_of(table, wanted.source_topic, here.partitions)
            offsets = await self._offsets(wanted, past, here)
            made_log = forked(table, wanted, past, offsets, made.stay, self.clock())
            identify(made_log, await self._ids(table, made_log))
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the fork is not made") from None
        fork = fork_of(made_log)

        async def command(rules: RuleSet) -> RuleSetDecision:
            return _rule_of(wanted)(rules)

        def remember(result: RuleChange | Refusal) -> StoredAnswer | None:
            return None if isinstance(result, Refusal) else answer(fork)

        await self._write(made_log, Caller(caller.actor, caller.reason, on_behalf_of=caller.on_behalf_of), view)
        try:
            wishes = ChangeWishes(accept_skip=True, stitched_topic=wanted.topic)
            await self._rules.change(command, wishes, caller, remember)
        except Refusal:
            await self._take_back(wanted.topic)
            raise
        return fork

    async def delete(
        self, topic: str, caller: Caller, answer: Callable[[topics.TopicFork], StoredAnswer | None]
    ) -> topics.TopicFork:
        """Deletes the topics with the fork's own records, then its log, then its rule.

        If a cluster is away, nothing more is deleted, and a further call goes on.
        """
        view = await self._journal.first_time(caller)
        table = view.state.effective
        log_of_fork = fork_to_delete(table, topic)
        refuse_moving(view.topic_moves, topic)
        fork = fork_of(log_of_fork)
        try:
            for cluster, there in own_topics(log_of_fork).items():
                if cluster in table.clusters:
                    await self._connections.delete_topics(table.clusters[cluster], there)
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the fork is not deleted") from None
        await self._end(topic, Caller(caller.actor, caller.reason, on_behalf_of=caller.on_behalf_of))

        async def command(rules: RuleSet) -> RuleSetDecision:
            route = rules.table.route(topic)
            if route is None or route.rule.match != ExactName(topic):
                return RuleSetDecision(None, rules.table, rules.table)
            return rules.change(edits.Remove(route.rule.rule_id))

        def remember(result: RuleChange | Refusal) -> StoredAnswer | None:
            return None if isinstance(result, Refusal) else answer(fork)

        await self._rules.change(command, ChangeWishes(accept_skip=True), caller, remember)
        return fork

    async def _write(self, made: stitches.StitchedLog, caller: Caller, view: MeshView) -> None:
        source = made.fork_of

        def rests_on(view: MeshView) -> object:
            moves = [each.name for each in view.topic_moves.open.values() if each.spec.topic == source]
            return view.rules_revision, view.state.effective.policies.stitch_policy, moves

        change = ended(made.topic)
        change.changes[0].log.CopyFrom(made)
        await self._journal.append([Draft(STITCHES, change)], caller, view, rests_on=rests_on)

    async def _take_back(self, topic: str) -> None:
        await self._end(topic, Caller(CONTROL, "the rule of the fork was refused"))

    async def _end(self, topic: str, caller: Caller) -> None:
        await self._journal.append(
            [Draft(STITCHES, ended(topic))],
            caller,
            self._journal.view,
            rests_on=lambda view: view.state.effective.policies.stitch_policy,
        )

    async def _check_sides(self, table: RoutingTable, wanted: topics.ForkTopicRequest) -> Side:
        """The side of the past. Creates the topic of the fork, unless an empty one is there."""
        route = table.route(wanted.source_topic)
        assert route is not None, "check_wanted has seen it"
        here = await self._preparation.side(table, Place(route.cluster, route.upstream_topic))
        there = await self._preparation.side(table, Place(wanted.target_cluster, wanted.topic))
        check_sides(wanted.source_topic, here, there, stitched=True)
        known = table.route(wanted.topic)
        if known is not None and known.cluster != wanted.target_cluster:
            before = await self._preparation.side(table, Place(known.cluster, known.upstream_topic))
            if before.partitions:
                raise _exists(wanted.topic, known.cluster)
        if there.partitions:
            found = await self._connections.log_ranges(
                table.clusters[wanted.target_cluster], {wanted.topic: there.partitions}
            )
            if any(each.end for each in found[wanted.topic].values()):
                raise _exists(wanted.topic, wanted.target_cluster)
        else:
            await self._preparation.create(table, here, there, stitched=True)
        return here

    async def _offsets(
        self, wanted: topics.ForkTopicRequest, past: Sequence[stitches.LogPart], here: Side
    ) -> dict[int, int]:
        """The end of the past in each partition, as clients see it."""
        logs, silent = await self._looking.logs([(wanted.source_topic, here.place, here.partitions)])
        if silent:
            raise UnreachableError(silent[0])
        there = logs[wanted.source_topic]
        match wanted.WhichOneof("at"):
            case "offset":
                check_offsets(wanted.source_topic, wanted.offset, there)
                return {number: min(wanted.offset, each.end) for number, each in there.items()}
            case "time":
                return await self._since(wanted.time.ToDatetime(UTC), past, there)
            case _:
                return {number: each.end for number, each in there.items()}

    async def _ids(self, table: RoutingTable, made: stitches.StitchedLog) -> dict[str, dict[str, bytes]]:
        """The topic ids of the parts, by cluster: a topic that is made anew there later is none of the past."""
        return {
            cluster: await self._connections.topic_ids(table.clusters[cluster], topics)
            for cluster, topics in unidentified(made).items()
            if cluster in table.clusters
        }

    async def _since(
        self, time: datetime, past: Sequence[stitches.LogPart], there: Mapping[int, LogRange]
    ) -> dict[int, int]:
        """The first record from a time on, part by part; the end where there is none."""
        clusters, found = self._journal.view.state.effective.clusters, dict[int, int]()
        for place, part in enumerate(past):
            left = {number: time for number in there if number not in found}
            if not left:
                break
            if part.cluster_name not in clusters:
                raise UnreachableError(f"cluster {part.cluster_name!r} is not registered any more")
            offsets = await self._connections.offsets_since(clusters[part.cluster_name], part.topic, left)
            for number, offset in offsets.items():
                shown = max(part.partitions[number].start, offset + part.partitions[number].shift)
                end = past[place + 1].partitions[number].start if place + 1 < len(past) else there[number].end
                if offset >= 0 and shown < end:
                    found[number] = max(shown, there[number].start)
        return {number: found.get(number, each.end) for number, each in there.items()}


def _rule_of(wanted: topics.ForkTopicRequest) -> Callable[[RuleSet], RuleSetDecision]:
    fields = edits.RuleFields(target_cluster=wanted.target_cluster, upstream_topic="")

    def command(rules: RuleSet) -> RuleSetDecision:
        route = rules.table.route(wanted.topic)
        if route is not None and Place(route.cluster, route.upstream_topic) == (wanted.target_cluster, wanted.topic):
            return RuleSetDecision(None, rules.table, rules.table)
        return rules.change(edits.Set(ExactName(wanted.topic), fields, edits.Place.FIRST))

    return command


def _exists(topic: str, cluster: str) -> Exists:
    return Exists(f"topics/{topic}", f"topic {topic!r} exists on {cluster!r} already; give the fork another name")
