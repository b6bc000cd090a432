"""Refusals, and the errors that clients get for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mesh.acls import Decision, Operation, ResourceType
from services.gateway.wire.errors import ErrorCode

CODES: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a refusal, by the type of the resource."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An operation that the policy does not allow."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    resource_name: str
    decision: Decision
    api_key: int
    enforced: bool
    """False: the request goes on, because the policy only observes."""
    cause: str = ""
    """In the place of an ACL: why a cluster does not let the client in."""

    @property
    def reason(self) -> str:
        """Behind "because"."""
        return self.cause or self.decision.reason

    def __str__(self) -> str:
        what = f"{self.operation.word} {self.resource_type.word} {self.resource_name!r}"
        return f"{self.principal} from host {self.host} may not {what}, because {self.reason}"


Report = Callable[[Refusal], None]
"""Returns at once."""
