"""DescribeUserScramCredentials and AlterUserScramCredentials where users are decisions of control.

The gateway answers by the users that it knows, and asks no cluster. It has no way to control, so it changes no user.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from mesh.connection_security import Mechanism
from mesh.scram import Verifier
from mesh.scram_codec import NUMBERS
from services.gateway.authentication.principal import NOBODY
from services.gateway.requests.memory import OwnUsers, Session
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

REFUSED = (
    "users of this gateway are decisions of control, and the gateway can't change them: use meshctl users set, or "
    "meshctl users delete"
)


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
        text = "no users of control have come yet; try again"
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
    asked = Counter(each.name for each in message.users or ()) or Counter(dict.fromkeys(known, 1))
    results = [_described(name, times, known.get(name)) for name, times in asked.items()]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def alter(message: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    """Refuses each user of the request."""
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(name, ErrorCode.POLICY_VIOLATION, REFUSED) for name in _names(message)]
    )


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
