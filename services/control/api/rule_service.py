"""RuleService: the ordered forwarding rules."""

from __future__ import annotations

from typing import Any

from mesh.routing.codec import match_from_proto, rule_from_proto
from mesh.rpc import admin, admin_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_failure, stored_response
from services.control.decisions.rules import ChangeWishes, Command, RuleChange, RuleDecisions
from services.control.domain.errors import InvalidField, Refusal
from services.control.domain.rules import Place
from services.control.domain.view import MeshView
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

MASK = ("match", "target_cluster")


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
        everything = not paths or "*" in paths
        match = match_from_proto(request.rule.match) if everything or "match" in paths else None
        target = request.rule.target_cluster if everything or "target_cluster" in paths else None
        shadowed = request.options.allow_shadowed
        return await self._change(
            request, lambda rules: rules.update(rule_id, match=match, target=target, allow_shadowed=shadowed)
        )

    async def SetRule(self, request: admin.SetRuleRequest, context: Any) -> admin.RuleChangeResponse:
        match, place = match_from_proto(request.match), shapes.place(request.place)
        target, shadowed = request.target_cluster, request.options.allow_shadowed
        return await self._change(request, lambda rules: rules.set(match, target, place, allow_shadowed=shadowed))

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
            options.expected_revision, options.validate_only, options.create_missing_topics, options.allow_unreachable
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
