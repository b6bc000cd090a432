"""The tools that plan a change. A plan changes nothing: it says what would come of the change, and has the exact order.

The server keeps the order until somebody confirms the plan. Before the order goes out, the plan is made again: if the
facts of the plan are no longer the same, the order is not given.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from google.protobuf.message import Message
from pydantic import Field

from mesh import durations
from mesh.rpc import admin, record_rules, replays, routing, topic_moves, topics
from mesh.wording import edit_text
from meshctl.assistant.arguments import Cluster, Group, Name, Reason, Text, Topic, named
from meshctl.commands.changes import Request, edits_of, ordered
from meshctl.commands.replay_starting import CALL_MARGIN, PLAN_SECONDS
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict
from meshctl.replays import Place, range_of, what

Match = Literal[
    "topic", "topic_prefix", "topic_regex", "unmatched_topics", "group", "group_prefix", "transactional_id",
    "transactional_id_prefix",
]  # fmt: skip
THROUGH = "(through an assistant)"
"""Behind each reason, so that the history tells which decisions came this way."""
Consent = Literal["create_missing_topics", "accept_skip", "allow_shadowed", "allow_unreachable"]
Consents = Annotated[
    Sequence[Consent],
    Field(max_length=4, description="Only what control names as the way out of a refusal or finding."),
]
Partition = Annotated[int | None, Field(ge=0, lt=2**31, description="Only this partition; all otherwise.")]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """One exact change."""

    what: str
    request: Message
    """The order as it goes to control."""
    order: Callable[[Connection], Message]
    check: Callable[[Connection], None]
    """MeshctlError if the facts of the plan are no longer the same."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of a change as control foresees them, and the change."""

    facts: dict[str, Any]
    change: Change


def plan_rule_set(
    connection: Connection,
    match: Annotated[Match, Field(description="The kind of match.")],
    name: Annotated[Text, Field(description="The topic, prefix, regex, group or id; empty for unmatched_topics.")],
    target_cluster: Annotated[Text, Field(description="The cluster from now on; empty: as before.")],
    reason: Reason,
    upstream_topic: Annotated[Text | None, Field(description="The topic's name there: shop.{topic}.")] = None,
    before: Annotated[Text, Field(description="A new rule comes right before this one; last otherwise.")] = "",
    consents: Consents = (),
) -> Plan:
    """Dry run of a forwarding rule: change the rule with exactly this match, or add it. The answer says which topics
    move, what readers see (effects), which clients are affected, and findings, the worst first. SILENT_SKIP means
    that a group would skip records. The records of a topic stay where they are: to take them along, use
    plan_topic_move.
    """
    request = admin.SetRuleRequest(
        match=_match(match, name), target_cluster=target_cluster, upstream_topic=upstream_topic
    )
    if before:
        request.place.before = named("rules", before)
    return _rules(connection, request, reason, consents)


def plan_rule_remove(
    connection: Connection,
    rule: Annotated[Name, Field(description="The id of the rule.")],
    reason: Reason,
    consents: Consents = (),
) -> Plan:
    """Dry run of the removal of a forwarding rule: the topics that move because the next rule decides, or none."""
    return _rules(connection, admin.RemoveRuleRequest(name=named("rules", rule)), reason, consents)


def plan_revert(
    connection: Connection,
    reason: Reason,
    revision: Annotated[
        int, Field(ge=0, lt=2**63, description="The rules of this revision; 0: those before the last change.")
    ] = 0,
    consents: Consents = (),
) -> Plan:
    """Dry run of an undo: the forwarding rules of an earlier revision, or those before the last change, as a new
    decision. Control asks for the role operator also for this plan.
    """
    request = admin.RevertRequest(revision=revision) if revision else admin.RevertRequest(last=True)
    return _rules(connection, request, reason, consents)


def plan_offset_reset(
    connection: Connection,
    group: Group,
    topic: Topic,
    to: Annotated[Name, Field(description='"start", "end", an offset of one partition, a time in RFC 3339, or "-2h".')],
    reason: Reason,
    partition: Partition = None,
    stop_members: Annotated[bool, Field(description="Drain the members that sidecars hold meanwhile.")] = False,
) -> Plan:
    """Dry run of a reset: where a consumer group would read on. For each partition: committed_before is the offset
    now (-1: none), start_offset the new offset, end_offset the end. A smaller offset means that the group reads
    records again, a larger one that it skips records. Control refuses a reset while the group has members, and asks
    for the role operator also for this plan.
    """
    wanted = range_of(topic, partition, None, None)
    if to == "end":
        wanted.start_at_end = True
    elif to != "start":
        place = Place().convert(to, None, None)
        if isinstance(place, int) and partition is None:
            raise MeshctlError("an offset is one of a partition: give a partition", ExitCode.BAD_REQUEST)
        wanted = range_of(topic, partition, place, None)
    by_group = replays.ReplayByGroup(group=group, stop=stop_members)
    planned = _started(connection, replays.ReplaySpec(ranges=[wanted], group=by_group, dry_run=True), reason)
    exact = replays.ReplaySpec(
        ranges=[range_of(each.topic, each.partition, each.start_offset, None) for each in planned.partitions],
        group=by_group,
    )
    if not exact.ranges:
        raise MeshctlError(f"no partition of {topic} would get another offset", ExitCode.REFUSED)

    def facts(found: replays.Replay) -> Any:
        rows = sorted((p.topic, p.partition, p.cluster, p.committed_before, p.start_offset) for p in found.partitions)
        return rows, sorted(found.stopped)

    def check(again: Connection) -> None:
        counted = replays.ReplaySpec(dry_run=True)
        counted.MergeFrom(exact)
        compare(facts(planned), facts(_started(again, counted, reason)))

    request = _start_of(exact, told(reason))
    change = Change(what(exact), request, lambda now: _ordered_start(now, request), check)
    return Plan(as_dict(planned), change)


def plan_topic_move(
    connection: Connection,
    topic: Topic,
    target_cluster: Cluster,
    reason: Reason,
    bytes_per_second: Annotated[int, Field(ge=0, lt=2**63, description="Speed of the copy at most; 0: no bound.")] = 0,
) -> Plan:
    """The records that a move of a topic to another cluster would copy, and the groups that go along with their
    offsets. Control checks the rest when the move begins. Clients notice a short wait at the switch.
    """

    def place(asked: Connection) -> topics.GetTopicResponse:
        return asked.call(asked.topics.GetTopic, topics.GetTopicRequest(name=named("topics", topic)))

    def facts(found: topics.GetTopicResponse) -> Any:
        return found.topic.cluster, found.topic.upstream_topic, found.topic.partitions

    found = place(connection)
    explained = connection.call(connection.decisions.Explain, admin.ExplainRequest(topic=topic))
    known = [each for each in explained.live_partitions if each.start >= 0]
    request = topic_moves.StartTopicMoveRequest(
        spec=topic_moves.TopicMoveSpec(topic=topic, target_cluster=target_cluster, bytes_per_second=bytes_per_second),
        reason=told(reason),
        request_id=str(uuid.uuid4()),
    )
    change = Change(
        f"move topic {topic} with its records from {found.topic.cluster} to {target_cluster}",
        request,
        lambda now: now.call(now.topic_moves.StartTopicMove, request),
        lambda again: compare(facts(found), facts(place(again))),
    )
    shown = {
        "topic": as_dict(found.topic),
        "to_cluster": target_cluster,
        "offsets_to_copy": str(sum(each.end - each.start for each in known)),
        "of_partitions": len(known),
        "groups_that_go_along": [as_dict(each) for each in found.readers],
        "notes": [*found.problems, *explained.notes],
    }
    return Plan(shown, change)


def plan_cancel(
    connection: Connection,
    kind: Literal["move", "replay"],
    name: Annotated[Name, Field(description="The id of the move or replay.")],
    reason: Reason,
) -> Plan:
    """The state of an open move or replay that would be cancelled. A cancelled move leaves the topic where it is."""
    found = _running(connection, kind, name)
    made: type[topic_moves.CancelTopicMoveRequest] | type[replays.CancelReplayRequest]
    made = topic_moves.CancelTopicMoveRequest if kind == "move" else replays.CancelReplayRequest
    request = made(name=found.name, reason=told(reason), request_id=str(uuid.uuid4()))

    def order(now: Connection) -> Message:
        if isinstance(request, topic_moves.CancelTopicMoveRequest):
            return now.call(now.topic_moves.CancelTopicMove, request)
        return now.call(now.replays.CancelReplay, request)

    def check(again: Connection) -> None:
        compare(found.state, _running(again, kind, name).state)

    return Plan(as_dict(found), Change(f"cancel {found.name}", request, order, check))


def _running(connection: Connection, kind: str, name: str) -> topic_moves.MoveWithRecords | replays.Replay:
    if kind == "move":
        move = topic_moves.GetTopicMoveRequest(name=named("topicmoves", name))
        return connection.call(connection.topic_moves.GetTopicMove, move)
    return connection.call(connection.replays.GetReplay, replays.GetReplayRequest(name=named("replays", name)))


def plan_record_rule(
    connection: Connection,
    record_rule: Annotated[Name, Field(description="The id of the mirror or content rule.")],
    action: Literal["pause", "resume"],
    reason: Reason,
) -> Plan:
    """A mirror or a content rule that would pause or go on, as control would have it then. Control asks for the role
    operator also for this plan.
    """
    name = named("recordrules", record_rule)
    before = connection.call(connection.record_rules.GetRecordRule, record_rules.GetRecordRuleRequest(name=name))

    made: type[record_rules.PauseRecordRuleRequest] | type[record_rules.ResumeRecordRuleRequest]
    made = record_rules.PauseRecordRuleRequest if action == "pause" else record_rules.ResumeRecordRuleRequest
    request = made(name=name)
    request.options.expected_revision, request.options.reason = before.revision, told(reason)

    def order(now: Connection) -> record_rules.RecordRule:
        if isinstance(request, record_rules.PauseRecordRuleRequest):
            return now.call(now.record_rules.PauseRecordRule, request)
        return now.call(now.record_rules.ResumeRecordRule, request)

    request.options.validate_only = True
    planned = order(connection)
    request.options.validate_only, request.options.request_id = False, str(uuid.uuid4())
    return Plan(as_dict(planned), Change(f"{action} record rule {name}", request, order, _control_checks))


def _rules(connection: Connection, request: Request, reason: str, consents: Sequence[str]) -> Plan:
    """The dry run of a change of the rules. The order counts only for the rule set that the dry run saw."""
    seen = connection.call(connection.rules.ListRules, admin.ListRulesRequest(page_size=1))
    request.options.expected_revision = seen.revision
    request.options.reason = told(reason)
    for each in consents:
        setattr(request.options, each, True)
    if edits := edits_of(request):
        asked = admin.DryRunRequest(edits=edits, options=request.options)
        planned: Message = connection.call(connection.rules.DryRun, asked)
    else:  # a revert: control alone knows its edits
        request.options.validate_only = True
        planned = ordered(connection, request)
        request.options.validate_only = False
    request.options.request_id = str(uuid.uuid4())
    return Plan(
        as_dict(planned), Change(edit_text(request), request, lambda now: ordered(now, request), _control_checks)
    )


def _control_checks(_connection: Connection) -> None:
    """The order has an expected_revision: control refuses it if something has changed since the plan."""


def _match(kind: Match, name: str) -> routing.RuleMatch:
    if kind == "unmatched_topics":
        return routing.RuleMatch(unmatched_topics=True)
    if not name:
        raise MeshctlError(f"name the {kind}", ExitCode.BAD_REQUEST)
    made = routing.RuleMatch()
    setattr(made, kind, name)
    return made


def _started(connection: Connection, spec: replays.ReplaySpec, reason: str) -> replays.Replay:
    return _ordered_start(connection, _start_of(spec, reason))


def _start_of(spec: replays.ReplaySpec, reason: str) -> replays.StartReplayRequest:
    return replays.StartReplayRequest(
        spec=spec, reason=reason, request_id=str(uuid.uuid4()), wait=durations.of_s(PLAN_SECONDS)
    )


def _ordered_start(connection: Connection, request: replays.StartReplayRequest) -> replays.Replay:
    return connection.call(connection.replays.StartReplay, request, at_least=PLAN_SECONDS + CALL_MARGIN)


def told(reason: str) -> str:
    return f"{reason} {THROUGH}"


def compare(planned: T, now: T) -> None:
    if planned != now:
        text = "the mesh has changed since the plan, so nothing was done: make the plan again"
        raise MeshctlError(text, ExitCode.CONFLICT, status="PLAN_OUTDATED")
