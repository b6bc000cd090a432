"""The first page: what there is, what is away, what moves now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mesh.rpc import admin, record_rules, replays, topic_moves
from mesh.wording import short, word
from services.console import words
from services.console.asking import Ask
from services.console.parts import Cell, Cells, Facts, Notice, Page, Part, Table, Tone
from services.console.views.moves import OPEN as MOVES_OPEN
from services.console.views.moves import progress as move_progress
from services.console.views.replaying import progress

KINDS = (
    ("Gateways", admin.MEMBER_KIND_GATEWAY),
    ("Routers", admin.MEMBER_KIND_ROUTER),
    ("Sidecars", admin.MEMBER_KIND_SIDECAR),
)


async def overview(ask: Ask) -> Page:
    stubs = ask.caller.stubs
    status, running, moves = await asyncio.gather(
        ask.caller.call(stubs.decisions.GetStatus, admin.GetStatusRequest()),
        ask.caller.call(stubs.replays.ListReplays, replays.ListReplaysRequest(open_only=True, page_size=20)),
        ask.caller.call(stubs.topic_moves.ListTopicMoves, topic_moves.ListTopicMovesRequest(page_size=100)),
    )
    parts: list[Part] = [
        *notices(status),
        _facts(status),
        moving(status, running.replays, moves.topic_moves),
        clusters(status.clusters),
    ]
    parts += [members(title, kind, status.members) for title, kind in KINDS]
    return Page("Overview", parts, lead="The mesh, as control sees it now.", live="status")


def notices(status: admin.MeshStatus) -> Iterable[Notice]:
    """The problems that somebody should look at, worst first."""
    if status.problems:
        yield Notice(words.count(len(status.problems), "problem") + " of control", Tone.BAD, list(status.problems))
    away = [*_away(status)]
    if away:
        yield Notice(f"{words.count(len(away), 'part')} of the mesh away", Tone.BAD, away)
    if status.HasField("frozen"):
        frozen = status.frozen
        why = f": {frozen.reason}" if frozen.reason else ""
        yield Notice(f"{frozen.actor} froze the mesh {words.age(frozen.time)}{why}", Tone.WARNING)


def _away(status: admin.MeshStatus) -> Iterable[str | Cell]:
    for cluster in status.clusters:
        if cluster.state == admin.CLUSTER_STATE_UNREACHABLE:
            yield f"Cluster {cluster.spec.cluster_name} does not answer. {cluster.state_reason}"
    for member in status.members:
        if member.left_behind:
            yield f"{member.name} was last seen {words.age(member.last_seen_time)}, and is left behind."
    for rule in status.record_rules:
        if rule.progress.problem:
            name = short(rule.name)
            yield Cell(f"Record rule {name} does not run: {rule.progress.problem}", f"/record-rules/{name}")


def _facts(status: admin.MeshStatus) -> Facts:
    behind = status.last_position - status.published_position
    published = "all" if behind <= 0 else f"all but {behind:,}"
    return Facts(
        "Now",
        [
            (
                "Revision in force",
                Cell(f"{status.revision:,}", f"/changes/{status.revision}" if status.revision else ""),
            ),
            ("Events in the log", f"{status.last_position:,}"),
            ("Events carried to Kafka", published),
            ("Kafka clients at gateways", f"{sum(each.client_count for each in status.members):,}"),
            ("Consumer instances", Cell(f"{len(status.instances):,}", "/sidecars")),
            ("Scheduled changes", Cell(f"{status.scheduled_changes:,}", "/schedules")),
        ],
    )


def moving(
    status: admin.MeshStatus, running: Iterable[replays.Replay], moves: Iterable[topic_moves.MoveWithRecords]
) -> Table:
    """Rollouts, moves of topics, mirrors that copy, and open replays."""
    rows: list[Cells] = []
    if pending := status.pending_revision:
        landed = [each for each in status.members if each.revision >= pending]
        done = len(landed) / max(len(status.members), 1)
        text = f"{len(landed)} of {len(status.members)} members answered"
        rows.append([Cell(f"Revision {pending}", f"/changes/{pending}"), "rollout", Cell(text, done=done)])
    for move in moves:
        if move.state in MOVES_OPEN:
            text = f"topic {move.spec.topic} to {move.copy.target_cluster}"
            rows.append([Cell(text, f"/moves/{short(move.name)}"), "move", move_progress(move)])
    for rule in status.record_rules:
        if rule.state == record_rules.RECORD_RULE_STATE_RUNNING and rule.HasField("progress"):
            name = short(rule.name)
            lag = words.count(rule.progress.lag, "record") + " behind"
            rows.append([Cell(name, f"/record-rules/{name}"), rule.spec.WhichOneof("kind") or "", lag])
    for replay in running:
        name = short(replay.name)
        rows.append([Cell(name, f"/replays/{name}"), "replay", progress(replay)])
    return Table("Moving now", ("What", "Kind", "How far"), rows, "Nothing moves now.")


def clusters(found: Iterable[admin.Cluster]) -> Table:
    rows: list[Cells] = [
        [
            each.spec.cluster_name + (" (home)" if each.home else ""),
            words.toned(word(admin.ClusterState, each.state, "not asked yet")),
            f"{len(each.brokers):,}",
            ", ".join(each.spec.bootstrap_servers),
        ]
        for each in found
    ]
    return Table("Clusters", ("Cluster", "State", "Brokers", "Addresses"), rows, "No cluster is registered.")


def members(title: str, kind: admin.MemberKind.ValueType, found: Iterable[admin.Member]) -> Table:
    """Members of one kind. Only gateways have Kafka clients and a router."""
    gateways = kind == admin.MEMBER_KIND_GATEWAY
    own = ("Router", "Clients") if gateways else ()
    rows: list[Cells] = []
    for each in found:
        if each.kind != kind:
            continue
        name = short(each.name)
        extra = (short(each.router) or words.NONE, f"{each.client_count:,}") if gateways else ()
        linked = Cell(name, f"/sidecars/{name}") if kind == admin.MEMBER_KIND_SIDECAR else name
        seen = words.age(each.last_seen_time)
        rows.append([linked, state(each), f"{each.revision:,}", *extra, each.version or words.NONE, seen])
    columns = ("Name", "State", "Revision", *own, "Version", "Seen")
    return Table(title, columns, rows, f"Control has heard of no {title.lower()}.")


def state(of: admin.Member) -> Cell:
    """ "applied", "held", "left behind"; with the reason of a refusal."""
    if of.left_behind:
        return words.toned("left behind")
    cell = words.toned(word(admin.MemberPhase, of.phase))
    return Cell(f"{cell.text}: {of.phase_reason}", tone=Tone.BAD) if of.phase_reason else cell
