"""Delegation tokens: found, renewed and expired on whichever cluster has them; made in a mesh of one cluster alone.

Theory of operation
1. A token is an id and a secret that one cluster has made up. No two clusters can be given the same token, and the
   gateway itself takes none. With several clusters a new token is refused (DELEGATION_TOKEN_AUTH_DISABLED): clients
   make it on the cluster that it is for.
2. A client that asks for a token without an owner means its own user. A broker would read the gateway's user as the
   owner, and give away the gateway's own rights. So the request is refused (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
3. To renew or expire a token the gateway asks all clusters. The cluster that made the token does so, if the gateway's
   user there is among the token's renewers. Tokens of all clusters are listed.
4. These answers have no field for a sentence, so the sentence goes to the log.
"""

from collections.abc import Mapping
from typing import Protocol, TypeVar

import structlog

from services.gateway.requests.clusters.everywhere import ask_everywhere
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import Verdict, joined, refusal, silence
from services.gateway.wire.apis import api_name
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from services.gateway.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from services.gateway.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from services.gateway.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

NO_TOKENS = frozenset({ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED})
"""Answers of a cluster that has no tokens, or does not handle them over a connection like the gateway's."""
NOT_HERE = NO_TOKENS | {ErrorCode.DELEGATION_TOKEN_NOT_FOUND}

log = structlog.get_logger(__name__)


class Answered(Protocol):
    error_code: int


A = TypeVar("A", bound=Answered)


def handle_create(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(CreateDelegationTokenRequest)
    refusal = _refusal(message, mesh)
    if refusal is not None:
        _tell(request, refusal)
        return CreateDelegationTokenResponse(error_code=refusal.code)
    outcomes = yield from ask_everywhere(mesh, message, request.version, CreateDelegationTokenResponse)
    return _success(outcomes) or CreateDelegationTokenResponse(error_code=_verdict(request, outcomes).code)


def handle_renew(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(RenewDelegationTokenRequest)
    outcomes = yield from ask_everywhere(mesh, message, request.version, RenewDelegationTokenResponse)
    return _success(outcomes) or RenewDelegationTokenResponse(error_code=_verdict(request, outcomes).code)


def handle_expire(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ExpireDelegationTokenRequest)
    outcomes = yield from ask_everywhere(mesh, message, request.version, ExpireDelegationTokenResponse)
    return _success(outcomes) or ExpireDelegationTokenResponse(error_code=_verdict(request, outcomes).code)


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeDelegationTokenRequest)
    outcomes = yield from ask_everywhere(mesh, message, request.version, DescribeDelegationTokenResponse)
    verdict = _verdict(request, outcomes)
    if verdict.code:
        return DescribeDelegationTokenResponse(error_code=verdict.code)
    answers = [outcome for outcome in outcomes.values() if not isinstance(outcome, Unreachable)]
    return DescribeDelegationTokenResponse(tokens=[token for answer in answers for token in answer.tokens])


def _refusal(message: CreateDelegationTokenRequest, mesh: MeshView) -> Verdict | None:
    clusters = list(mesh.table.clusters)
    if len(clusters) != 1:
        which = f"the mesh has several ({', '.join(clusters)})" if clusters else "the mesh has none yet"
        text = f"a token is good for one cluster, and {which}: make it on the cluster that it is for"
        return refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, text)
    if not message.owner_principal_name:
        text = "a token without a named owner would be the gateway's own: name the owner (version 3)"
        return refusal(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, text)
    return None


def _success(outcomes: Mapping[str, A | Unreachable]) -> A | None:
    return next((o for o in outcomes.values() if not isinstance(o, Unreachable) and not o.error_code), None)


def _verdict(request: Request, outcomes: Mapping[str, A | Unreachable]) -> Verdict:
    """The joint verdict of all clusters; a cluster that lacks the token does not count, unless all lack it."""
    verdicts = {
        name: silence(outcome) if isinstance(outcome, Unreachable) else Verdict(outcome.error_code)
        for name, outcome in outcomes.items()
    }
    verdict = joined(verdicts, NOT_HERE)
    if verdict.code:
        _tell(request, verdict)
    return verdict


def _tell(request: Request, verdict: Verdict) -> None:
    log.warning(
        "a request about delegation tokens failed",
        api=api_name(request.api_key),
        client_id=request.header.client_id,
        reason=verdict.text or error_name(verdict.code),
    )
