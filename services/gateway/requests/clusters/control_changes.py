"""Changes of ACLs, quotas and users that clients make by Kafka's tools: control decides about each one.

The gateway only passes a change on, with the client that it knows. Control checks whether the client may make it.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from typing import Any, Final

from mesh.acls.subjects import plain_host
from mesh.rpc import kafka_changes
from services.gateway.requests.changes import Change, NotChanged
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Command
from services.gateway.requests.verdicts import Verdict, refusal
from services.gateway.wire.errors import ErrorCode

REASON: Final = "by Kafka's tools"
CODES: Final = {
    "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
    "PERMISSION_DENIED": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "UNAUTHENTICATED": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "FAILED_PRECONDITION": ErrorCode.POLICY_VIOLATION,
    "NOT_FOUND": ErrorCode.POLICY_VIOLATION,
    "ALREADY_EXISTS": ErrorCode.POLICY_VIOLATION,
    "UNIMPLEMENTED": ErrorCode.POLICY_VIOLATION,
}
"""By the status of control's answer. Any other status leaves open whether the change was made: REQUEST_TIMED_OUT."""


def change(session: Session, **kind: Any) -> Generator[Command, Any, kafka_changes.KafkaChangeResponse | Verdict]:
    """Control's answer; a verdict with an error if control has not made the change, or has not answered.

    `kind`: one field of KafkaChangeRequest, whose message has a reason and a request_id.
    """
    request = kafka_changes.KafkaChangeRequest(
        principal=session.principal,
        more_principals=session.proved.group_principals,
        host=plain_host(session.address),
        **kind,
    )
    inner = getattr(request, next(iter(kind)))
    inner.reason, inner.request_id = REASON, str(uuid.uuid4())
    outcome: kafka_changes.KafkaChangeResponse | NotChanged = yield Change(request)
    if isinstance(outcome, NotChanged):
        return refusal(CODES.get(outcome.status, ErrorCode.REQUEST_TIMED_OUT), outcome.reason)
    return outcome
