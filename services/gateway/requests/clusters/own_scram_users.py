"""DescribeUserScramCredentials and AlterUserScramCredentials where users are decisions of control.

The gateway answers by the users that it knows, and asks no cluster. Control changes them: a request for one mechanism
of a user leaves the user's other mechanisms as the gateway knows them.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final

from mesh.connection_security import Mechanism
from mesh.rpc import users as pb
from mesh.scram import Verifier
from mesh.scram_codec import MECHANISMS, NUMBERS, verifier_to_proto
from services.gateway.authentication.principal import NOBODY
from services.gateway.requests.clusters.control_changes import change
from services.gateway.requests.memory import OwnUsers, Session
from services.gateway.requests.plan import Command, Plan
from services.gateway.requests.verdicts import DONE, Verdict, refusal
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

UNKNOWN = "no users of control have come yet; try again"
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
"""As on brokers (ScramMechanism.minIterations, and KIP-554)."""
_MECHANISMS: Final[Mapping[int, Mechanism]] = {int(number): mechanism for number, mechanism in MECHANISMS.items()}


def describe(
    message: DescribeUserScramCredentialsRequest, users: OwnUsers, session: Session
) -> DescribeUserScramCredentialsResponse:
    """Shows names to clients alone that have proved who they are: others could find out whom to attack."""
    known = users()
    if session.proved == NOBODY:
        text = "the gateway shows its users to clients alone that have proved who they are"
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=text
        )
    if known is None:
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=UNKNOWN)
    asked = Counter(each.name for each in message.users or ()) or Counter(dict.fromkeys(known, 1))
    results = [_described(name, times, known.get(name)) for name, times in asked.items()]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def alter(message: AlterUserScramCredentialsRequest, users: OwnUsers, session: Session) -> Plan:
    """Control decides about each user by itself, one after another."""
    results = []
    for name in _names(message):
        verdict = yield from _altered(name, message, users(), session)
        results.append(AlterUserScramCredentialsResult(name, *verdict))
    return AlterUserScramCredentialsResponse(results=results)


def _altered(
    name: str,
    message: AlterUserScramCredentialsRequest,
    known: Mapping[str, Mapping[Mechanism, Verifier]] | None,
    session: Session,
) -> Generator[Command, Any, Verdict]:
    if known is None:
        return refusal(ErrorCode.REQUEST_TIMED_OUT, UNKNOWN)
    deletions = [each.mechanism for each in message.deletions if each.name == name]
    upsertions = [each for each in message.upsertions if each.name == name]
    numbers = deletions + [each.mechanism for each in upsertions]
    if len(set(numbers)) < len(numbers):
        text = "A user credential cannot be altered twice in the same request"  # Kafka's own words
        return Verdict(ErrorCode.DUPLICATE_RESOURCE, text)
    if not set(numbers) <= _MECHANISMS.keys():
        return Verdict(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    present = dict(known.get(name, {}))
    for number in deletions:
        if present.pop(_MECHANISMS[number], None) is None:
            text = "Attempt to delete a user credential that does not exist"
            return Verdict(ErrorCode.RESOURCE_NOT_FOUND, text)
    for each in upsertions:
        if not LEAST_ITERATIONS <= each.iterations <= MOST_ITERATIONS:
            return Verdict(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"iterations: {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
        mechanism = _MECHANISMS[each.mechanism]
        present[mechanism] = Verifier.of_salted_password(
            mechanism, bytes(each.salted_password), bytes(each.salt), each.iterations
        )
    if present:
        verifiers = map(verifier_to_proto, present.values())
        made = yield from change(session, set_user=pb.SetUserRequest(user=name, verifiers=verifiers))
    else:
        made = yield from change(session, delete_user=pb.DeleteUserRequest(user=name))
    return made if isinstance(made, Verdict) else DONE


def _names(message: AlterUserScramCredentialsRequest) -> Iterable[str]:
    return dict.fromkeys([each.name for each in message.deletions] + [each.name for each in message.upsertions])


def _described(name: str, times: int, found: Mapping[Mechanism, Verifier] | None) -> DescribeUserScramCredentialsResult:
    """With the texts of Kafka's brokers."""
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
    if found is None:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    infos = [CredentialInfo(NUMBERS[each.mechanism], each.iterations) for each in found.values()]
    return DescribeUserScramCredentialsResult(name, 0, None, sorted(infos, key=lambda each: each.mechanism))
