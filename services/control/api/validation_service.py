"""ValidationService: the rules by which records are validated, as decisions."""

from __future__ import annotations

from typing import Any

from mesh.rpc import events, validation, validation_grpc
from mesh.validation.codec import rule_from_proto
from services.control.api import pages
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.policies import PolicyDecisions, RoutersBelow
from services.control.decisions.validation.commands import SUBJECT
from services.control.domain.validation.rules import change_rules
from services.control.store.journal import Journal


class ValidationService(validation_grpc.ValidationServiceServicer):
    """See ValidationService in validation.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._journal = journal
        self._decisions = PolicyDecisions(SUBJECT, journal, routers_below)

    async def ChangeValidationRules(
        self, request: validation.ChangeValidationRulesRequest, context: Any
    ) -> validation.ChangeValidationRulesResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        def response(
            revision: int, event: events.ValidationRulesChanged | None
        ) -> validation.ChangeValidationRulesResponse:
            changed = () if event is None else event.changes
            return validation.ChangeValidationRulesResponse(revision=revision, changed=changed)

        async def decided() -> validation.ChangeValidationRulesResponse:
            made = await self._decisions.decide(
                lambda policy: change_rules(policy, request.changes),
                who,
                lambda *each: stored_response(who, response(*each)),
            )
            return response(*made)

        return await once(validation.ChangeValidationRulesResponse, decided())

    async def ListValidationRules(
        self, request: validation.ListValidationRulesRequest, context: Any
    ) -> validation.ListValidationRulesResponse:
        self._journal.require_loaded()
        listing = f"validation {request.at_revision}"
        revision, start = pages.place_at_revision(listing, request.page_token) or (request.at_revision, 0)
        policy = await self._decisions.at(revision)
        topic = request.topic
        found = [each for each in policy.rules if not topic or rule_from_proto(each).matches(topic)]
        end = start + pages.page_size(request.page_size)
        return validation.ListValidationRulesResponse(
            rules=found[start:end],
            next_page_token=pages.token(listing, f"{policy.revision} {end}") if end < len(found) else "",
            revision=policy.revision,
        )
