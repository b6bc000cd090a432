"""DescribeUserScramCredentials and AlterUserScramCredentials: a user is the same on every cluster.

The client salts and hashes the password itself, so one request gives a user the same credential everywhere. If some
clusters lack a user, the others still delete it; if all lack the user, the answer says so.

If users of the gateway are decisions of control, `own_scram_users.py` answers.
"""

import structlog

from services.gateway.requests.clusters import own_scram_users
from services.gateway.requests.clusters.everywhere import ask_everywhere, by_home_first
from services.gateway.requests.plan import Controller, MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, joined, silence
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from services.gateway.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

NOT_THERE = frozenset({ErrorCode.RESOURCE_NOT_FOUND})

log = structlog.get_logger(__name__)


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    """If clusters have different iterations of a mechanism, the answer shows the home cluster's."""
    message = request.decode(DescribeUserScramCredentialsRequest)
    if mesh.memory.own_users is not None:
        return own_scram_users.describe(message, mesh.memory.own_users, mesh.session)
    outcomes = yield from ask_everywhere(mesh, message, request.version, DescribeUserScramCredentialsResponse)
    verdicts: dict[str, Verdict] = {}
    of_user: dict[str, dict[str, Verdict]] = {}
    iterations: dict[str, dict[int, dict[str, int]]] = {}
    for cluster in by_home_first(outcomes, mesh):
        outcome = outcomes[cluster]
        if isinstance(outcome, Unreachable):
            verdicts[cluster] = silence(outcome)
            continue
        verdicts[cluster] = Verdict(outcome.error_code, outcome.error_message)
        for result in outcome.results:
            of_user.setdefault(result.user, {})[cluster] = Verdict(result.error_code, result.error_message)
            mechanisms = iterations.setdefault(result.user, {})
            for info in result.credential_infos:
                mechanisms.setdefault(info.mechanism, {})[cluster] = info.iterations
    code, text = joined(verdicts)
    if code:
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=text)
    _tell_differences(iterations, len(verdicts))
    results = []
    for user, told in of_user.items():
        infos = [CredentialInfo(kind, next(iter(found.values()))) for kind, found in iterations[user].items()]
        results.append(DescribeUserScramCredentialsResult(user, *joined(told, NOT_THERE), infos))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AlterUserScramCredentialsRequest)
    if mesh.memory.own_users is not None:
        return (yield from own_scram_users.alter(message, mesh.memory.own_users, mesh.session))
    outcomes = yield from ask_everywhere(
        mesh, message, request.version, AlterUserScramCredentialsResponse, Controller()
    )
    users = dict.fromkeys([each.name for each in message.deletions] + [each.name for each in message.upsertions])
    results = []
    for user in users:
        verdicts = {cluster: _verdict_on(user, outcome) for cluster, outcome in outcomes.items()}
        results.append(AlterUserScramCredentialsResult(user, *joined(verdicts, NOT_THERE)))
    return AlterUserScramCredentialsResponse(results=results)


def _verdict_on(user: str, outcome: AlterUserScramCredentialsResponse | Unreachable) -> Verdict:
    if isinstance(outcome, Unreachable):
        return silence(outcome)
    return next((Verdict(r.error_code, r.error_message) for r in outcome.results if r.user == user), LEFT_OUT)


def _tell_differences(iterations: dict[str, dict[int, dict[str, int]]], clusters: int) -> None:
    for user, mechanisms in iterations.items():
        for mechanism, found in mechanisms.items():
            if len(found) < clusters or len(set(found.values())) > 1:
                log.warning(
                    "clusters have different SCRAM credentials of a user",
                    user=user,
                    mechanism=mechanism,
                    iterations=found,
                )
