"""ProtectionService: the rules by which values are protected, as decisions."""

from __future__ import annotations

from typing import Any

from mesh.protection.codec import rule_from_proto
from mesh.rpc import protection, protection_grpc
from services.control.api.listed_policies import ListedPolicy
from services.control.decisions.policies import RoutersBelow
from services.control.decisions.protection.commands import SUBJECT
from services.control.domain.protection.rules import change_rules
from services.control.store.journal import Journal


class ProtectionService(protection_grpc.ProtectionServiceServicer):
    """See ProtectionService in protection.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._policy = ListedPolicy(SUBJECT, journal, routers_below)

    async def ChangeProtectionRules(
        self, request: protection.ChangeProtectionRulesRequest, context: Any
    ) -> protection.ChangeProtectionRulesResponse:
        return await self._policy.change(request, change_rules, protection.ChangeProtectionRulesResponse)

    async def ListProtectionRules(
        self, request: protection.ListProtectionRulesRequest, context: Any
    ) -> protection.ListProtectionRulesResponse:
        def asked(policy: protection.ProtectionPolicy) -> list[protection.ProtectionRule]:
            topic = request.topic
            return [each for each in policy.rules if not topic or rule_from_proto(each).matches(topic)]

        rules, token, revision = await self._policy.page(request, asked)
        return protection.ListProtectionRulesResponse(rules=rules, next_page_token=token, revision=revision)
