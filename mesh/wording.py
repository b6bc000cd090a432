"""Enum values, rules, and calls that change rules, in words: the same for meshctl and for the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from mesh.rpc import access, admin, events, proposals, routing, topic_moves
from mesh.rpc.roles import narrowing_text


def word(of: Any, number: int, unsaid: str = "-") -> str:
    """ "not allowed" of STATE_NOT_ALLOWED: the part of an enum value's name that is its own.

    `of`: the enum. `unsaid` stands for UNSPECIFIED. A value of a later release has no name here, and is a number.
    """
    first: str = of.keys()[0]
    try:
        said = of.Name(number).removeprefix(first[: first.rindex("UNSPECIFIED")]).lower()
    except ValueError:
        return f"unknown to this release ({number})"
    return unsaid if said == "unspecified" else said.replace("_", " ")


def origin_of(move: topic_moves.MoveWithRecords) -> str:
    """The cluster from which the topic moves away. A move with two cuts has a place in between, on its target."""
    if move.HasField("stitch"):
        return move.stitch.way.source_cluster
    return move.copy.parts[0].cluster_name if move.copy.parts else move.copy.source_cluster


def match_text(of: routing.RuleMatch) -> str:
    """ "prefix apples", "topic orders", "regex a.*", "group prefix shop-", "transactional id pay"."""
    kind = of.WhichOneof("kind")
    if kind is None:
        return "nothing"
    about = kind.removeprefix("topic_").replace("_", " ")
    named = about if kind == "unmatched_topics" else f"{about} {getattr(of, kind)}"
    return f"{named} for {clients_text(of.client)}" if of.HasField("client") else named


def clients_text(of: routing.ClientMatch) -> str:
    """ "client id shop-1", "client id prefix shop- from 10.1.0.0/16": all that is said holds."""
    said = (
        (of.principal, f"principal {of.principal}"),
        (of.client_id, f"client id {of.client_id}"),
        (of.client_id_prefix, f"client id prefix {of.client_id_prefix}"),
        (of.software_name, f"software {of.software_name}"),
        (of.source_networks, f"from {' or '.join(of.source_networks)}"),
    )
    return ", ".join(text for value, text in said if value)


def rule_text(spec: routing.RuleSpec) -> str:
    """ "prefix apples -> c1", "topic orders -> c1 as shop.{topic}", "client software kafkajs/2.2 -> a single node"."""
    return f"{match_text(spec.match)} -> {decision_text(spec)}"


def decision_text(spec: routing.RuleSpec) -> str:
    """The text behind the arrow."""
    return " ".join(part for part in (spec.target_cluster, how_text(spec)) if part)


def how_text(spec: routing.RuleSpec) -> str:
    """The rule's properties other than its cluster; empty when there are none."""
    parts = (
        (spec.upstream_topic, f"as {spec.upstream_topic}"),
        (spec.shadow_topics, "with shadow topics"),
        (spec.span_clusters, "spanning clusters"),
        (spec.node_view == routing.NODE_VIEW_SINGLE, "a single node"),
        (spec.node_view == routing.NODE_VIEW_PER_CLUSTER, "a node per cluster"),
    )
    return ", ".join(text for said, text in parts if said)


def short(name: str) -> str:
    """The id in a resource name: "apples" of "rules/apples"."""
    return name.split("/", 1)[-1]


def actor_text(of: events.Event | admin.HistoryEntry | admin.AuditEvent) -> str:
    """ "ci for ada"."""
    return f"{of.actor} for {of.on_behalf_of}" if of.on_behalf_of else of.actor


def change_kind_word(kind: access.ChangeKind.ValueType) -> str:
    """ "topic moves"."""
    known = kind in access.ChangeKind.values()
    return access.ChangeKind.Name(kind).removeprefix("CHANGE_KIND_").lower().replace("_", " ") if known else str(kind)


def proposal_state_word(state: proposals.ProposalState.ValueType) -> str:
    """ "open", "applied"."""
    known = state in proposals.ProposalState.values()
    return proposals.ProposalState.Name(state).removeprefix("PROPOSAL_STATE_").lower() if known else str(state)


def approval_rule_text(of: proposals.ApprovalRule) -> str:
    """ "changes of rules, acls for topics pay-*", "all changes"."""
    kinds = f"changes of {', '.join(map(change_kind_word, of.kinds))}" if of.kinds else "all changes"
    return " ".join(part for part in (kinds, narrowing_text(of.narrowing)) if part)


def command_text(packed: AnyMessage) -> str:
    """The effect of a scheduled call."""
    for kind in _EDITS:
        if packed.TypeName() == kind.DESCRIPTOR.full_name:
            return edit_text(kind.FromString(packed.value))
    return "a command of a kind that this release does not know"


def edit_text(request: Message) -> str:
    """The effect of a call: "set topic apples -> c2", "remove rule apples", "revert to revision 7"."""
    return _EDITS[type(request)](request)


def _arrow(what: str, target: str) -> str:
    return f"{what} -> {target}" if target else what


def _replaced(request: admin.ReplaceRulesRequest) -> str:
    return f"replace all rules by {len(request.rules)} rule{'' if len(request.rules) == 1 else 's'}"


def _edits(request: admin.ChangeRulesRequest) -> str:
    return f"{len(request.edits)} edit{'' if len(request.edits) == 1 else 's'}"


_EDITS: dict[type[Message], Callable[[Any], str]] = {
    admin.CreateRuleRequest: lambda request: f"add {rule_text(request.rule)}",
    admin.UpdateRuleRequest: lambda request: _arrow(f"update rule {short(request.name)}", decision_text(request.rule)),
    admin.SetRuleRequest: lambda request: _arrow(f"set {match_text(request.match)}", request.target_cluster),
    admin.ReorderRuleRequest: lambda request: f"move rule {short(request.name)}",
    admin.RemoveRuleRequest: lambda request: f"remove rule {short(request.name)}",
    admin.ReplaceRulesRequest: _replaced,
    admin.ChangeRulesRequest: _edits,
    admin.RevertRequest: lambda request: (
        "revert the last change" if request.last else f"revert to revision {request.revision}"
    ),
}
