"""RuleService: the ordered forwarding rules."""

from __future__ import annotations

from typing import Any

from mesh.rpc import admin, admin_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once, once_with_revision, present_record, time_left
from services.control.api.dry_run_shapes import dry_run
from services.control.api.edits import command_of
from services.control.decisions.answers import stored_failure, stored_response
from services.control.decisions.dry_runs.dry_runs import DryRuns
from services.control.decisions.past.revisions import Past
from services.control.decisions.rules.commands import RuleChange, RuleDecisions
from services.control.decisions.rules.moves import ChangeWishes
from services.control.domain.errors import InvalidField, Refusal
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer


class RuleService(admin_grpc.RuleServiceServicer):
    """See RuleService in admin.proto."""

    def __init__(self, journal: Journal, decisions: RuleDecisions, dry_runs: DryRuns, past: Past) -> None:
        self._journal = journal
        self._decisions = decisions
        self._dry_runs = dry_runs
        self._past = past

    async def ListRules(self, request: admin.ListRulesRequest, context: Any) -> admin.ListRulesResponse:
        self._journal.require_loaded()
        view, size = self._journal.view, pages.page_size(request.page_size)
        start = pages.number_of("rules", request.page_token) or 0
        more = start + size < len(view.state.effective.rules)
        return admin.ListRulesResponse(
            rules=shapes.rules(view, start, start + size),
            next_page_token=pages.token("rules", start + size) if more else "",
            revision=view.rules_revision,
        )

    async def GetRule(self, request: admin.GetRuleRequest, context: Any) -> admin.Rule:
        self._journal.require_loaded()
        rule_id = shapes.id_of("rules", request.name)
        view = self._journal.view
        place = view.state.effective.rules.index(view.rule_set.get(rule_id))
        return shapes.rules(view, place, place + 1)[0]

    async def CreateRule(self, request: admin.CreateRuleRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def UpdateRule(self, request: admin.UpdateRuleRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def SetRule(self, request: admin.SetRuleRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def ReorderRule(self, request: admin.ReorderRuleRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def RemoveRule(self, request: admin.RemoveRuleRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def ReplaceRules(self, request: admin.ReplaceRulesRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def ChangeRules(self, request: admin.ChangeRulesRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def Revert(self, request: admin.RevertRequest, context: Any) -> admin.RuleChangeResponse:
        return await self._change(request)

    async def EndCanary(self, request: admin.EndCanaryRequest, context: Any) -> admin.EndCanaryResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(
            admin.EndCanaryResponse,
            who,
            lambda answer: self._decisions.canaries.end(
                request.revision, promote=request.promote, caller=who, answer=answer
            ),
        )

    async def DryRun(self, request: admin.DryRunRequest, context: Any) -> admin.DryRunResponse:
        self._journal.require_loaded()
        options = admin.ChangeOptions()
        options.CopyFrom(request.options)
        options.allow_shadowed = True  # a rule that can never match is a finding like others
        command = command_of(admin.ChangeRulesRequest(edits=request.edits, options=options), self._past)
        allow_shadowed = request.options.allow_shadowed
        result = await self._dry_runs.run(command, wishes_of(request.options), allow_shadowed=allow_shadowed)
        return dry_run(result)

    async def _change(self, request: Any) -> admin.RuleChangeResponse:
        self._journal.require_loaded()
        command = command_of(request, self._past)
        options: admin.ChangeOptions = request.options
        if options.HasField("canary") and options.wait_for == admin.WAIT_FOR_ALL_MEMBERS:
            raise InvalidField("options.wait_for", "a canary is not for all members; leave one of the two out")
        who = caller(request, options.request_id, options.reason)
        wishes = wishes_of(options)
        waits = options.wait_for == admin.WAIT_FOR_ALL_MEMBERS and not options.validate_only

        def remember(result: RuleChange | Refusal) -> StoredAnswer | None:
            if not who.request_id:
                return None
            if isinstance(result, Refusal):
                return stored_failure(who.request_id, who.digest, result)
            return stored_response(who, shapes.change(result))

        async def decide() -> admin.RuleChangeResponse:
            past = isinstance(request, admin.RevertRequest)
            record = None if waits else present_record()
            return shapes.change(
                await self._decisions.change(command, wishes, who, remember, of_the_past=past, record=record)
            )

        response = await once(admin.RuleChangeResponse, decide())
        if waits:
            await self._decisions.followed(response.revision, wishes, time_left())
        return response


def wishes_of(options: admin.ChangeOptions) -> ChangeWishes:
    return ChangeWishes(
        options.expected_revision,
        options.validate_only,
        options.create_missing_topics,
        options.allow_unreachable,
        options.accept_skip,
        frozenset(name.removeprefix("members/") for name in options.without_members),
        options.canary if options.HasField("canary") else None,
    )
