"""The protocol between the router and its child process: one JSON object a line, over stdin and stdout.

1. An order describes the wanted state, not an action: `RunRule` carries the whole rule as the log has decided it, and
   may be repeated at will. The target cluster stores the revisions of the rewinds and one-time syncs that were carried
   out, together with the position. So each is carried out once, whichever process gets the order.
2. Secrets travel as the references that the log holds; the child resolves them when it connects.
3. The child ends at the end of stdin. Records that are read but not committed then are never visible on the target.
4. The child sends `Progress` of each rule once a second and after each change. After StopRule and RemoveRule it sends
   `RuleEnded`, when the rule's last transaction is over.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError

from mesh.rpc import record_rules, routing

LARGEST_LINE = 16 * 1024 * 1024
"""Bytes; a line is a rule or a report of a rule, at most some hundred kilobytes even with thousands of partitions."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """An operator's order to read from another place, with the position of its event."""

    revision: int
    start: record_rules.StartAt


@dataclass(frozen=True, slots=True)
class GroupSync:
    """An operator's order to translate committed offsets once, with the position of its event."""

    revision: int
    groups: tuple[str, ...] = ()
    """Empty: all that have committed offsets of mirrored topics."""


@dataclass(frozen=True, slots=True)
class RunRule:
    """Run this rule from now on, in place of the earlier order for the rule."""

    spec: record_rules.RecordRuleSpec
    revision: int
    """Position of the last event about the rule."""
    created: int
    """Position of the event that created the rule: a rule that was removed and created again starts from its own start.
    """
    paused: bool = False
    rewinds: tuple[Rewind, ...] = ()
    """The rewinds that still decide the start of a partition, oldest first. A rewind to offsets does not affect other
    partitions; earlier rewinds, which may not have been carried out yet, decide those."""
    syncs: tuple[GroupSync, ...] = ()
    """The last syncs since the rule was created, oldest first, for the same reason."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """Stop this rule where it is: another router runs it."""

    rule_id: str


@dataclass(frozen=True, slots=True)
class RemoveRule:
    """This rule is no more: stop it, and forget its positions and offset maps.

    If no router runs the rule at the time, its records on the targets stay. They do no harm, because they name the
    event that created the rule.
    """

    rule_id: str


@dataclass(frozen=True, slots=True)
class Clusters:
    """All clusters of the mesh, in place of those in earlier orders. Rules whose clusters changed connect again."""

    clusters: tuple[routing.ClusterSpec, ...]
    mesh_id: str
    """Distinguishes this mesh's workers from another mesh's on the same target: the Kafka cluster id of the home
    cluster.
    """


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rule is."""

    progress: record_rules.RecordRuleProgress
    """Without the router's name."""
    counts: dict[str, float] = field(default_factory=dict)
    """Metrics of the rule: name without the router's prefix -> value, as in `docs/reference/router-metrics.md`."""


@dataclass(frozen=True, slots=True)
class RuleEnded:
    """A rule runs here no more; another router may run it."""

    rule_id: str


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of this process by outcome, since the last such report."""

    counts: dict[str, int]


Order = RunRule | StopRule | RemoveRule | Clusters
Report = Progress | RuleEnded | Spans


def order_line(order: Order) -> bytes:
    """The order as a line."""
    match order:
        case RunRule():
            said: dict[str, Any] = {
                "run": _plain(order.spec),
                "revision": order.revision,
                "created": order.created,
                "paused": order.paused,
            }
            said["rewinds"] = [{"revision": each.revision, "start": _plain(each.start)} for each in order.rewinds]
            said["syncs"] = [{"revision": each.revision, "groups": list(each.groups)} for each in order.syncs]
        case StopRule():
            said = {"stop": order.rule_id}
        case RemoveRule():
            said = {"remove": order.rule_id}
        case Clusters():
            said = {"clusters": [_plain(cluster) for cluster in order.clusters], "mesh_id": order.mesh_id}
    return _line(said)


def order_of(line: bytes) -> Order:
    """The order in a line. ValueError for any other line."""
    said = json.loads(line)
    match said:
        case {"run": spec, "revision": revision, "created": created, "paused": paused}:
            rewinds = tuple(_rewind_of(each) for each in said["rewinds"])
            syncs = tuple(GroupSync(each["revision"], tuple(each["groups"])) for each in said["syncs"])
            parsed = ParseDict(spec, record_rules.RecordRuleSpec())
            return RunRule(parsed, revision, created, paused, rewinds, syncs)
        case {"stop": rule_id}:
            return StopRule(rule_id)
        case {"remove": rule_id}:
            return RemoveRule(rule_id)
        case {"clusters": clusters, "mesh_id": mesh_id}:
            return Clusters(tuple(ParseDict(each, routing.ClusterSpec()) for each in clusters), mesh_id)
    raise ValueError(f"no order: {line[:100]!r}")


def report_line(report: Report) -> bytes:
    """The report as a line."""
    match report:
        case Progress():
            said = base64.b64encode(report.progress.SerializeToString()).decode()
            return _line({"progress": said, "counts": report.counts})
        case RuleEnded():
            return _line({"ended": report.rule_id})
        case Spans():
            return _line({"spans": report.counts})


def report_of(line: bytes) -> Report:
    """The report in a line. ValueError for any other line."""
    match json.loads(line):
        case {"progress": progress, "counts": counts}:
            return Progress(_progress_of(progress), counts)
        case {"ended": rule_id}:
            return RuleEnded(rule_id)
        case {"spans": counts}:
            return Spans(counts)
    raise ValueError(f"no report: {line[:100]!r}")


def _progress_of(said: str) -> record_rules.RecordRuleProgress:
    """The progress comes as bytes, once a second with each partition: as JSON, thousands of partitions would block the
    router's loop for longer than gateways may wait."""
    try:
        return record_rules.RecordRuleProgress.FromString(base64.b64decode(said))
    except DecodeError as error:
        raise ValueError(f"no progress: {error}") from error


def _rewind_of(said: Any) -> Rewind:
    return Rewind(said["revision"], ParseDict(said["start"], record_rules.StartAt()))


def _plain(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"
