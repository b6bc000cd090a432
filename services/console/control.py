"""Calls to control, each with the identity of the viewer: a token, or the console's own certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from mesh.rpc import (
    acls_grpc,
    admin_grpc,
    audit_grpc,
    clients_grpc,
    drains_grpc,
    grants_grpc,
    instances_grpc,
    lineage_grpc,
    listeners_grpc,
    pipelines_grpc,
    profiles_grpc,
    proposals_grpc,
    protection_grpc,
    quotas_grpc,
    record_rules_grpc,
    rehearsals_grpc,
    replays_grpc,
    standbys_grpc,
    subscriptions_grpc,
    tenants_grpc,
    topic_moves_grpc,
    topics_grpc,
    traffic_grpc,
    transactions_grpc,
    users_grpc,
    validation_grpc,
)
from mesh.rpc.channels import open_channel, open_tls_channel
from mesh.rpc.method_access import decides
from services.console import metrics
from services.console.outcomes import CallError, Ending, failure
from services.console.settings import ConsoleSettings

RECONNECT_S = 5.0
"""Seconds for a new connection: a channel tries again at least every 3 s."""
NOBODY_CAN_LOG_IN = "This console has no address of control for tokens (token_address), so nobody can log in."


class Stubs:
    """The services of control on one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.clusters = admin_grpc.ClusterServiceStub(channel)
        self.rules = admin_grpc.RuleServiceStub(channel)
        self.decisions = admin_grpc.QueryServiceStub(channel)
        self.changes = admin_grpc.ChangeControlServiceStub(channel)
        self.approvals = proposals_grpc.ApprovalServiceStub(channel)
        self.access = grants_grpc.AccessServiceStub(channel)
        self.record_rules = record_rules_grpc.RecordRuleServiceStub(channel)
        self.instances = instances_grpc.InstanceServiceStub(channel)
        self.replays = replays_grpc.ReplayServiceStub(channel)
        self.audit = audit_grpc.AuditServiceStub(channel)
        self.lineage = lineage_grpc.LineageServiceStub(channel)
        self.traffic = traffic_grpc.TrafficServiceStub(channel)
        self.acls = acls_grpc.AclServiceStub(channel)
        self.users = users_grpc.UserServiceStub(channel)
        self.transactions = transactions_grpc.TransactionServiceStub(channel)
        self.topics = topics_grpc.TopicServiceStub(channel)
        self.groups = topics_grpc.GroupServiceStub(channel)
        self.topic_moves = topic_moves_grpc.TopicMoveServiceStub(channel)
        self.drains = drains_grpc.DrainServiceStub(channel)
        self.standbys = standbys_grpc.StandbyServiceStub(channel)
        self.rehearsals = rehearsals_grpc.RehearsalServiceStub(channel)
        self.subscriptions = subscriptions_grpc.SubscriptionServiceStub(channel)
        self.quotas = quotas_grpc.QuotaServiceStub(channel)
        self.listeners = listeners_grpc.ListenerServiceStub(channel)
        self.tenants = tenants_grpc.TenantServiceStub(channel)
        self.validation = validation_grpc.ValidationServiceStub(channel)
        self.protection = protection_grpc.ProtectionServiceStub(channel)
        self.clients = clients_grpc.ClientServiceStub(channel)
        self.pipelines = pipelines_grpc.PipelineServiceStub(channel)
        self.profiles = profiles_grpc.ProfileServiceStub(channel)


@dataclass(frozen=True, slots=True)
class Caller:
    """Control as one viewer sees it."""

    stubs: Stubs
    credentials: grpc.CallCredentials | None
    """None: the channel's certificate says who calls."""
    timeout_s: float

    @property
    def logged_in(self) -> bool:
        return self.credentials is not None

    async def call(self, method: Any, request: Message, *, timeout_s: float | None = None) -> Any:
        """The answer. CallError; a call that changes something needs a log-in."""
        changes = decides(method._method.decode())  # the generated stubs keep the name there alone
        if changes and not self.logged_in:
            raise CallError(Ending.LOGIN_NEEDED, "UNAUTHENTICATED", "Changes need a log-in.")
        try:
            answer = await self._answer(method, request, timeout_s or self.timeout_s, may_repeat=not changes)
        except grpc.aio.AioRpcError as error:
            metrics.calls.labels(error.code().name).inc()
            raise failure(error, decides=changes) from None
        metrics.calls.labels("OK").inc()
        return answer

    async def _answer(self, method: Any, request: Message, timeout_s: float, *, may_repeat: bool) -> Any:
        """A question is asked again, once, if its connection broke or was not made: a new one is tried at once."""
        try:
            return await method(request, timeout=timeout_s, credentials=self.credentials)
        except grpc.aio.AioRpcError as error:
            if not may_repeat or error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return await method(request, timeout=RECONNECT_S, credentials=self.credentials, wait_for_ready=True)


class Control:
    """The channels to control: one for tokens, one with the console's certificate."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """RpcTlsError or OSError if a file can't be used."""
        self._timeout_s = settings.call_timeout_s
        self._own = open_channel(settings.control_address, settings.rpc_tls)
        self._tokens: grpc.aio.Channel | None = None
        if settings.token_address is not None:
            self._tokens = open_tls_channel(settings.token_address, settings.authorities())
        self._own_stubs = Stubs(self._own)
        self._token_stubs = None if self._tokens is None else Stubs(self._tokens)

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    def by_token(self, token: str) -> Caller:
        if self._token_stubs is None:
            raise CallError(Ending.LOGIN_NEEDED, "UNAUTHENTICATED", NOBODY_CAN_LOG_IN)
        return Caller(self._token_stubs, grpc.access_token_call_credentials(token), self._timeout_s)

    def by_certificate(self) -> Caller:
        return Caller(self._own_stubs, None, self._timeout_s)

    async def close(self) -> None:
        await self._own.close()
        if self._tokens is not None:
            await self._tokens.close()
