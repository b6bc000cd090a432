"""ValidationService: the rules by which records are validated, as decisions."""

from __future__ import annotations

from typing import Any

from mesh.rpc import validation, validation_grpc
from mesh.validation.codec import rule_from_proto
from services.control.api.listed_policies import ListedPolicy
from services.control.decisions.policies import RoutersBelow
from services.control.decisions.validation.commands import SUBJECT
from services.control.domain.validation.rules import change_rules
from services.control.store.journal import Journal


class ValidationService(validation_grpc.ValidationServiceServicer):
    """See ValidationService in validation.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._policy = ListedPolicy(SUBJECT, journal, routers_below)

    async def ChangeValidationRules(
        self, request: validation.ChangeValidationRulesRequest, context: Any
    ) -> validation.ChangeValidationRulesResponse:
        return await self._policy.change(request, change_rules, validation.ChangeValidationRulesResponse)

    async def ListValidationRules(
        self, request: validation.ListValidationRulesRequest, context: Any
    ) -> validation.ListValidationRulesResponse:
        def asked(policy: validation.ValidationPolicy) -> list[validation.ValidationRule]:
            topic = request.topic
            return [each for each in policy.rules if not topic or rule_from_proto(each).matches(topic)]

        rules, token, revision = await self._policy.page(request, asked)
        return validation.ListValidationRulesResponse(rules=rules, next_page_token=token, revision=revision)
