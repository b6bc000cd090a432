"""KafkaChangeService: changes that administrators make by Kafka's own tools, at gateways."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from mesh.acls import Operation, ResourceType, Subject
from mesh.acls.acl import CLUSTER_NAME
from mesh.acls.codec import policy_from_proto
from mesh.rpc import kafka_changes, kafka_changes_grpc
from mesh.rpc.errors import denied
from mesh.rpc.method_access import PACKAGE
from services.control.api.auditing import Introduction
from services.control.api.calls import Calls
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.store.journal import Journal

METHODS: Final = {
    "create_acls": ("AclService/CreateAcls", Operation.ALTER),
    "delete_acls": ("AclService/DeleteAcls", Operation.ALTER),
    "change_quotas": ("QuotaService/ChangeQuotas", Operation.ALTER_CONFIGS),
    "set_user": ("UserService/SetUser", Operation.ALTER),
    "delete_user": ("UserService/DeleteUser", Operation.ALTER),
}
"""The call that makes each kind of change, and the operation on the cluster that it needs, as on brokers."""


class KafkaChangeService(kafka_changes_grpc.KafkaChangeServiceServicer):
    """See KafkaChangeService in kafka_changes.proto."""

    def __init__(self, journal: Journal, calls: Calls, method_of: Callable[[str], Any], *, allowed: bool) -> None:
        """`method_of`: the method of a service, as "AclService/CreateAcls"."""
        self._journal = journal
        self._calls = calls
        self._method_of = method_of
        self._allowed = allowed

    async def ChangeByKafka(
        self, request: kafka_changes.KafkaChangeRequest, context: Any
    ) -> kafka_changes.KafkaChangeResponse:
        self._journal.require_loaded()
        kind = request.WhichOneof("change")
        if kind is None:
            raise InvalidField("change", "is not said")
        if not self._allowed:
            raise NotAllowed(
                "KAFKA_TOOLS_CHANGE_NOTHING",
                "mesh",
                "ACLs, quotas and users of this mesh are decisions of control, and Kafka's tools change none: use "
                "meshctl, or set KAFKA_MESH_CONTROL_CHANGES_BY_KAFKA_TOOLS=true at control",
            )
        method, operation = METHODS[kind]
        subject = Subject((request.principal, *request.more_principals), request.host)
        if not await asyncio.to_thread(self._may, subject, operation):
            raise denied(f"no ACL of the mesh allows {subject} {operation.name} on the cluster")
        who = Introduction(request.principal, f"gateway {request.gateway}, {request.host}", secrets.token_hex(16))
        answer = await self._calls.make(f"{PACKAGE}{method}", self._method_of(method), getattr(request, kind), who)
        response = kafka_changes.KafkaChangeResponse()
        getattr(response, kind).CopyFrom(answer)
        return response

    def _may(self, subject: Subject, operation: Operation) -> bool:
        """By ACLs or as a super user, whatever the mode is: without a policy nobody may."""
        policy = self._journal.view.state.effective.policies.acl_policy
        if policy is None:
            return False
        return policy_from_proto(policy).decide(subject, operation, ResourceType.CLUSTER, CLUSTER_NAME).allowed
