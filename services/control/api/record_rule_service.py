"""RecordRuleService: mirrors and content rules, and their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from mesh.rpc import record_rules, record_rules_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.records.commands import (
    Command,
    RecordRuleChange,
    RecordRuleDecisions,
    RecordRuleWishes,
)
from services.control.decisions.records.progress import RecordProgress
from services.control.domain.errors import InvalidField
from services.control.store.drafts import Caller
from services.control.store.journal import Journal

M = TypeVar("M", bound=Message)


class RecordRuleService(record_rules_grpc.RecordRuleServiceServicer):
    """See RecordRuleService in record_rules.proto."""

    def __init__(self, journal: Journal, decisions: RecordRuleDecisions, progress: RecordProgress) -> None:
        self._journal = journal
        self._decisions = decisions
        self._progress = progress

    async def ListRecordRules(
        self, request: record_rules.ListRecordRulesRequest, context: Any
    ) -> record_rules.ListRecordRulesResponse:
        self._journal.require_loaded()
        rules = self._journal.view.record_rule_set.rules
        ids = sorted(rules)
        page, token = pages.cut(shapes.RECORD_RULES, ids, ids, request.page_size, request.page_token)
        shown = [shapes.record_rule(rules[rule_id], self._progress) for rule_id in page]
        return record_rules.ListRecordRulesResponse(record_rules=shown, next_page_token=token)

    async def GetRecordRule(self, request: record_rules.GetRecordRuleRequest, context: Any) -> record_rules.RecordRule:
        self._journal.require_loaded()
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return shapes.record_rule(self._journal.view.record_rule_set.get(rule_id), self._progress)

    async def CreateRecordRule(
        self, request: record_rules.CreateRecordRuleRequest, context: Any
    ) -> record_rules.RecordRule:
        if request.options.expected_revision:
            raise InvalidField("options.expected_revision", "a rule that is to be created has none; leave it out")
        spec = request.record_rule
        return await self._rule(request, spec.record_rule_id, lambda rules: rules.create(spec))

    async def UpdateRecordRule(
        self, request: record_rules.UpdateRecordRuleRequest, context: Any
    ) -> record_rules.RecordRule:
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return await self._rule(request, rule_id, lambda rules: rules.update(rule_id, request.record_rule))

    async def PauseRecordRule(
        self, request: record_rules.PauseRecordRuleRequest, context: Any
    ) -> record_rules.RecordRule:
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return await self._rule(request, rule_id, lambda rules: rules.pause(rule_id))

    async def ResumeRecordRule(
        self, request: record_rules.ResumeRecordRuleRequest, context: Any
    ) -> record_rules.RecordRule:
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return await self._rule(request, rule_id, lambda rules: rules.resume(rule_id))

    async def RewindRecordRule(
        self, request: record_rules.RewindRecordRuleRequest, context: Any
    ) -> record_rules.RecordRule:
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return await self._rule(request, rule_id, lambda rules: rules.rewind(rule_id, request.start))

    async def RemoveRecordRule(
        self, request: record_rules.RemoveRecordRuleRequest, context: Any
    ) -> record_rules.RemoveRecordRuleResponse:
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return await self._change(
            record_rules.RemoveRecordRuleResponse,
            request,
            rule_id,
            lambda rules: rules.remove(rule_id),
            lambda change: record_rules.RemoveRecordRuleResponse(revision=change.revision),
        )

    async def SyncGroupOffsets(
        self, request: record_rules.SyncGroupOffsetsRequest, context: Any
    ) -> record_rules.SyncGroupOffsetsResponse:
        rule_id = shapes.id_of(shapes.RECORD_RULES, request.name)
        return await self._change(
            record_rules.SyncGroupOffsetsResponse,
            request,
            rule_id,
            lambda rules: rules.sync_groups(rule_id, request.groups),
            lambda change: record_rules.SyncGroupOffsetsResponse(revision=change.revision),
        )

    async def _rule(self, request: Any, rule_id: str, command: Command) -> record_rules.RecordRule:
        """A change whose answer is the rule after that change."""

        def answer(change: RecordRuleChange) -> record_rules.RecordRule:
            rule = shapes.record_rule(change.after.record_rules[rule_id], self._progress)
            rule.warnings.extend(change.warnings)
            return rule

        return await self._change(record_rules.RecordRule, request, rule_id, command, answer)

    async def _change(
        self, kind: type[M], request: Any, rule_id: str, command: Command, answer: Callable[[RecordRuleChange], M]
    ) -> M:
        self._journal.require_loaded()
        options: record_rules.RecordRuleOptions = request.options
        who: Caller = caller(request, options.request_id, options.reason)
        wishes = RecordRuleWishes(options.expected_revision, options.validate_only, options.allow_unreachable)

        async def decide() -> M:
            change = await self._decisions.change(
                rule_id, command, wishes, who,
                lambda after, at: stored_response(who, answer(RecordRuleChange(after, at))),
            )  # fmt: skip
            return answer(change)

        return await once(kind, decide())
