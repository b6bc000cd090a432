"""ProtectionService: the rules by which values are protected, as decisions."""

from __future__ import annotations

from typing import Any

from mesh.protection.codec import rule_from_proto
from mesh.rpc import events, protection, protection_grpc
from services.control.api import pages
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.policies import PolicyDecisions, RoutersBelow
from services.control.decisions.protection.commands import SUBJECT
from services.control.domain.protection.rules import change_rules
from services.control.store.journal import Journal


class ProtectionService(protection_grpc.ProtectionServiceServicer):
    """See ProtectionService in protection.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._journal = journal
        self._decisions = PolicyDecisions(SUBJECT, journal, routers_below)

    async def ChangeProtectionRules(
        self, request: protection.ChangeProtectionRulesRequest, context: Any
    ) -> protection.ChangeProtectionRulesResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        def response(
            revision: int, event: events.ProtectionRulesChanged | None
        ) -> protection.ChangeProtectionRulesResponse:
            changed = () if event is None else event.changes
            return protection.ChangeProtectionRulesResponse(revision=revision, changed=changed)

        async def decided() -> protection.ChangeProtectionRulesResponse:
            made = await self._decisions.decide(
                lambda policy: change_rules(policy, request.changes),
                who,
                lambda *each: stored_response(who, response(*each)),
            )
            return response(*made)

        return await once(protection.ChangeProtectionRulesResponse, decided())

    async def ListProtectionRules(
        self, request: protection.ListProtectionRulesRequest, context: Any
    ) -> protection.ListProtectionRulesResponse:
        self._journal.require_loaded()
        listing = f"protection {request.at_revision}"
        revision, start = pages.place_at_revision(listing, request.page_token) or (request.at_revision, 0)
        policy = await self._decisions.at(revision)
        topic = request.topic
        found = [each for each in policy.rules if not topic or rule_from_proto(each).matches(topic)]
        end = start + pages.page_size(request.page_size)
        return protection.ListProtectionRulesResponse(
            rules=found[start:end],
            next_page_token=pages.token(listing, f"{policy.revision} {end}") if end < len(found) else "",
            revision=policy.revision,
        )
