"""RuleService: the ordered forwarding rules."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from mesh.routing.codec import match_from_proto, node_view_from_proto, rule_from_proto
from mesh.rpc import admin, admin_grpc, routing
from services.control.api import pages, shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_failure, stored_response
from services.control.decisions.moving import ChangeWishes
from services.control.decisions.rules import Command, RuleChange, RuleDecisions
from services.control.domain.errors import InvalidField, Refusal
from services.control.domain.rules import Place, RuleFields
from services.control.domain.view import MeshView
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

MASK = tuple(each.name for each in fields(RuleFields))
"""Fields of a rule that UpdateRule can change; their names are those of RuleSpec."""


class RuleService(admin_grpc.RuleServiceServicer):
    """See RuleService in admin.proto."""

    def __init__(self, journal: Journal, decisions: RuleDecisions) -> None:
        self._journal = journal
        self._decisions = decisions

    async def ListRules(self, request: admin.ListRulesRequest, context: Any) -> admin.ListRulesResponse:
        self._journal.require_loaded()
        view, size = self._journal.view, pages.page_size(request.page_size)
        start = pages.number_of("rules", request.page_token) or 0
        found = shapes.rules(view)
        return admin.ListRulesResponse(
            rules=found[start : start + size],
            next_page_token=pages.token("rules", start + size) if start + size < len(found) else "",
            revision=view.rules_revision,
        )

    async def GetRule(self, request: admin.GetRuleRequest, context: Any) -> admin.Rule:
        self._journal.require_loaded()
        rule_id = shapes.id_of("rules", request.name)
        self._journal.view.rule_set.get(rule_id)
        return next(rule for rule in shapes.rules(self._journal.view) if rule.spec.rule_id == rule_id)

    async def CreateRule(self, request: admin.CreateRuleRequest, context: Any) -> admin.RuleChangeResponse:
        shapes.spec_of(request, "rule")
        rule, place = rule_from_proto(request.rule), shapes.place(request.place) or Place.LAST
        shadowed = request.options.allow_shadowed
        return await self._change(request, lambda rules: rules.create(rule, place, allow_shadowed=shadowed))

    async def UpdateRule(self, request: admin.UpdateRuleRequest, context: Any) -> admin.RuleChangeResponse:
        shapes.spec_of(request, "rule")
        rule_id, paths = shapes.id_of("rules", request.name), request.update_mask.paths
        for path in paths:
            if path not in (*MASK, "*"):
                raise InvalidField("update_mask", f"{path!r} can't be updated; possible are {', '.join(MASK)}")
        wanted = _fields(request.rule, MASK if not paths or "*" in paths else paths)
        shadowed = request.options.allow_shadowed
        return await self._change(request, lambda rules: rules.update(rule_id, wanted, allow_shadowed=shadowed))

    async def SetRule(self, request: admin.SetRuleRequest, context: Any) -> admin.RuleChangeResponse:
        match, place = match_from_proto(request.match), shapes.place(request.place)
        said = [
            name for name in ("upstream_topic", "shadow_topics", "span_clusters", "node_view") if request.HasField(name)
        ]
        if request.target_cluster:
            said.append("target_cluster")
        wanted, shadowed = _fields(request, said), request.options.allow_shadowed
        return await self._change(request, lambda rules: rules.set(match, wanted, place, allow_shadowed=shadowed))

    async def MoveRule(self, request: admin.MoveRuleRequest, context: Any) -> admin.RuleChangeResponse:
        rule_id, place = shapes.id_of("rules", request.name), shapes.place(request.place)
        if place is None:
            raise InvalidField("place", "say where to: one of first, before and last")
        shadowed = request.options.allow_shadowed
        return await self._change(request, lambda rules: rules.move(rule_id, place, allow_shadowed=shadowed))

    async def RemoveRule(self, request: admin.RemoveRuleRequest, context: Any) -> admin.RuleChangeResponse:
        rule_id = shapes.id_of("rules", request.name)
        return await self._change(request, lambda rules: rules.remove(rule_id))

    async def ReplaceRules(self, request: admin.ReplaceRulesRequest, context: Any) -> admin.RuleChangeResponse:
        wanted = [rule_from_proto(rule) for rule in request.rules]
        shadowed = request.options.allow_shadowed
        return await self._change(request, lambda rules: rules.replace(wanted, allow_shadowed=shadowed))

    async def _change(self, request: Any, command: Command) -> admin.RuleChangeResponse:
        self._journal.require_loaded()
        options: admin.ChangeOptions = request.options
        who = caller(request, options.request_id, options.reason)
        wishes = ChangeWishes(
            options.expected_revision,
            options.validate_only,
            options.create_missing_topics,
            options.allow_unreachable,
            options.accept_skip,
        )

        def remember(result: RuleChange | Refusal, view: MeshView) -> StoredAnswer | None:
            if not who.request_id:
                return None
            if isinstance(result, Refusal):
                return stored_failure(who.request_id, who.digest, result)
            return stored_response(who, shapes.change(result, view))

        async def decide() -> admin.RuleChangeResponse:
            result = await self._decisions.change(command, wishes, who, remember)
            return shapes.change(result, self._journal.view)

        return await once(admin.RuleChangeResponse, decide())


def _fields(said: routing.RuleSpec | admin.SetRuleRequest, names: Collection[str]) -> RuleFields:
    """Those fields of a message about a rule."""
    return RuleFields(
        match=match_from_proto(said.match) if "match" in names else None,
        target_cluster=said.target_cluster if "target_cluster" in names else None,
        upstream_topic=said.upstream_topic if "upstream_topic" in names else None,
        shadow_topics=said.shadow_topics if "shadow_topics" in names else None,
        span_clusters=said.span_clusters if "span_clusters" in names else None,
        node_view=node_view_from_proto(said.node_view) if "node_view" in names else None,
    )
