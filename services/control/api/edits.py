"""From requests about rules to commands of the rule set. Each kind of edit stands here once, whether it comes alone or
among others (ChangeRules, DryRun).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

from google.protobuf.message import Message

from mesh.routing import InvalidRuleError
from mesh.routing.codec import match_from_proto, node_view_from_proto, rule_from_proto
from mesh.rpc import admin, routing
from services.control.api import shapes
from services.control.decisions.past.revisions import Past
from services.control.decisions.rules.commands import Command
from services.control.domain.errors import InvalidField
from services.control.domain.rules.edits import Create, Edit, Place, Remove, Reorder, Replace, RuleFields, Set, Update
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision

MASK = tuple(each.name for each in fields(RuleFields))
"""Fields of a rule that UpdateRule can change; their names are those of RuleSpec."""
MAX_EDITS = 20_000
"""In one request; as many as a mesh may have rules."""
FEW_RULES, FEW_BYTES = 5_000, 20_000
"""With no more rules, and no larger request, a decision is made on the event loop: a thread would cost more."""


def command_of(request: Any, past: Past) -> Command:
    """The command to the rule set in a request of RuleService."""
    if isinstance(request, admin.RevertRequest):
        return _revert(request, past)
    edits = edits_of(request.edits) if isinstance(request, admin.ChangeRulesRequest) else [_edit(request)]
    is_small = request.ByteSize() <= FEW_BYTES
    return changing(edits, is_small=is_small, allow_shadowed=request.options.allow_shadowed)


def changing(edits: Sequence[Edit], *, is_small: bool, allow_shadowed: bool) -> Command:
    """The command that carries edits out."""

    async def change(rules: RuleSet) -> RuleSetDecision:
        if is_small and len(rules.table.living_rules) <= FEW_RULES:
            return rules.change(*edits, allow_shadowed=allow_shadowed)
        # with thousands of rules a decision takes as long as a heartbeat may
        return await asyncio.to_thread(rules.change, *edits, allow_shadowed=allow_shadowed)

    return change


def edits_of(messages: Collection[admin.RuleEdit]) -> list[Edit]:
    """The edits of a list; an error in an edit names the place of that edit."""
    if len(messages) > MAX_EDITS:
        raise InvalidField("edits", f"{len(messages)} are more than the {MAX_EDITS} that one request may have")
    return [_placed_edit(number, message) for number, message in enumerate(messages)]


def _placed_edit(number: int, message: admin.RuleEdit) -> Edit:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise InvalidField(
            f"edits[{number}]", "says nothing; it is one of create, update, set, reorder, remove and replace"
        )
    try:
        return _edit(getattr(message, kind))
    except InvalidField as error:
        raise InvalidField(f"edits[{number}].{kind}.{error.field}", error.description) from None
    except InvalidRuleError as error:
        raise InvalidField(f"edits[{number}].{kind}.{error.field_name}", str(error)) from None


def _edit(request: Message) -> Edit:
    return _EDITS[type(request)](request)


def _create(request: admin.CreateRuleRequest) -> Edit:
    return Create(rule_from_proto(request.rule), shapes.place(request.place) or Place.LAST)


def _update(request: admin.UpdateRuleRequest) -> Edit:
    paths = request.update_mask.paths
    for path in paths:
        if path not in (*MASK, "*"):
            raise InvalidField("update_mask", f"{path!r} can't be updated; possible are {', '.join(MASK)}")
    wanted = _fields(request.rule, MASK if not paths or "*" in paths else paths)
    return Update(shapes.id_of("rules", request.name), wanted)


def _set(request: admin.SetRuleRequest) -> Edit:
    said = [
        name for name in ("upstream_topic", "shadow_topics", "span_clusters", "node_view") if request.HasField(name)
    ]
    if request.target_cluster:
        said.append("target_cluster")
    return Set(match_from_proto(request.match), _fields(request, said), shapes.place(request.place))


def _reorder(request: admin.ReorderRuleRequest) -> Edit:
    place = shapes.place(request.place)
    if place is None:
        raise InvalidField("place", "say where to: one of first, before and last")
    return Reorder(shapes.id_of("rules", request.name), place)


def _remove(request: admin.RemoveRuleRequest) -> Edit:
    return Remove(shapes.id_of("rules", request.name))


def _replace(request: admin.ReplaceRulesRequest) -> Edit:
    return Replace(tuple(rule_from_proto(rule) for rule in request.rules))


_EDITS: dict[type[Message], Callable[[Any], Edit]] = {
    admin.CreateRuleRequest: _create,
    admin.UpdateRuleRequest: _update,
    admin.SetRuleRequest: _set,
    admin.ReorderRuleRequest: _reorder,
    admin.RemoveRuleRequest: _remove,
    admin.ReplaceRulesRequest: _replace,
}


def _revert(request: admin.RevertRequest, past: Past) -> Command:
    match request.WhichOneof("to"):
        case "last" if request.last:
            return past.undone
        case "revision":
            return lambda rules: past.reverted(rules, request.revision)
        case _:
            raise InvalidField("to", "say which rules are wanted again: those of a revision, or last")


def _fields(said: routing.RuleSpec | admin.SetRuleRequest, names: Iterable[str]) -> RuleFields:
    """Those fields of a message about a rule."""
    return RuleFields(
        match=match_from_proto(said.match) if "match" in names else None,
        target_cluster=said.target_cluster if "target_cluster" in names else None,
        upstream_topic=said.upstream_topic if "upstream_topic" in names else None,
        shadow_topics=said.shadow_topics if "shadow_topics" in names else None,
        span_clusters=said.span_clusters if "span_clusters" in names else None,
        node_view=node_view_from_proto(said.node_view) if "node_view" in names else None,
    )
