"""A mesh whose people have certificates or tokens, and propose changes to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from google.rpc.error_details_pb2 import PreconditionFailure

from mesh.rpc import (
    access,
    acls_grpc,
    admin,
    admin_grpc,
    drains_grpc,
    grants,
    grants_grpc,
    listeners_grpc,
    proposals,
    proposals_grpc,
    routing,
    transactions_grpc,
    users_grpc,
)
from mesh.rpc.channels import OPTIONS, open_channel
from mesh.rpc.token_callers import PeopleIssuer
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.fixtures.token_issuer import TokenIssuer
from tests.integration.control.world import CALL, World, refused, status_of

STATE = grpc.StatusCode.FAILED_PRECONDITION
DENIED = grpc.StatusCode.PERMISSION_DENIED
LOST = grpc.StatusCode.ABORTED
OPEN, APPLIED = proposals.PROPOSAL_STATE_OPEN, proposals.PROPOSAL_STATE_APPLIED
RULES, ACLS, USERS = access.CHANGE_KIND_RULES, access.CHANGE_KIND_ACLS, access.CHANGE_KIND_USERS


class Person:
    """Somebody who calls control with a certificate, or with a token."""

    def __init__(self, channel: grpc.aio.Channel, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata
        self.rules = admin_grpc.RuleServiceStub(channel)
        self.changes = admin_grpc.ChangeControlServiceStub(channel)
        self.clusters = admin_grpc.ClusterServiceStub(channel)
        self.acls = acls_grpc.AclServiceStub(channel)
        self.listeners = listeners_grpc.ListenerServiceStub(channel)
        self.drains = drains_grpc.DrainServiceStub(channel)
        self.users = users_grpc.UserServiceStub(channel)
        self.transactions = transactions_grpc.TransactionServiceStub(channel)
        self.access = grants_grpc.AccessServiceStub(channel)
        self.approvals = proposals_grpc.ApprovalServiceStub(channel)

    def call(self, method: Any, request: Any, *metadata: tuple[str, str | bytes]) -> Any:
        return method(request, timeout=CALL, metadata=(*self._metadata, *metadata))

    def set(self, topic: str, target: str, *metadata: tuple[str, str | bytes], **options: Any) -> Any:
        match = routing.RuleMatch(topic=topic)
        request = admin.SetRuleRequest(match=match, target_cluster=target, options=admin.ChangeOptions(**options))
        return self.call(self.rules.SetRule, request, *metadata)

    async def require(self, *rules: proposals.ApprovalRule, **policy: Any) -> int:
        wanted = proposals.ApprovalPolicy(rules=rules, **policy)
        request = proposals.SetApprovalPolicyRequest(policy=wanted, reason="two pairs of eyes")
        answer = await self.call(self.approvals.SetApprovalPolicy, request)
        return int(answer.revision)

    def approve(self, name: str, **fields: str) -> Any:
        return self.call(self.approvals.ApproveProposal, proposals.ApproveProposalRequest(name=name, **fields))

    def refuse(self, name: str, **fields: str) -> Any:
        return self.call(self.approvals.RefuseProposal, proposals.RefuseProposalRequest(name=name, **fields))

    def withdraw(self, name: str) -> Any:
        return self.call(self.approvals.WithdrawProposal, proposals.WithdrawProposalRequest(name=name))

    async def shown(self, name: str) -> proposals.Proposal:
        found = await self.call(self.approvals.GetProposal, proposals.GetProposalRequest(name=name))
        assert isinstance(found, proposals.Proposal)
        return found

    async def listed(self, **request: Any) -> proposals.ListProposalsResponse:
        found = await self.call(self.approvals.ListProposals, proposals.ListProposalsRequest(**request))
        assert isinstance(found, proposals.ListProposalsResponse)
        return found


async def proposed(call: Any) -> str:
    """The name of the proposal that a call has become."""
    error = await refused(call, STATE, "for a second person")
    failure = PreconditionFailure()
    assert status_of(error).details[0].Unpack(failure)
    assert failure.violations[0].type == "NEEDS_APPROVAL"
    assert failure.violations[0].subject.startswith("proposals/")
    return str(failure.violations[0].subject)


async def reason_of(call: Any, code: grpc.StatusCode = STATE, *texts: str) -> str:
    """The reason with which a call is refused."""
    error = await refused(call, code, *texts)
    failure = PreconditionFailure()
    assert status_of(error).details[0].Unpack(failure)
    return str(failure.violations[0].type)


class Mesh:
    """Control with c1 and c2, and its people."""

    def __init__(self, world: World, authority: Authority, stack: AsyncExitStack) -> None:
        self.world, self.authority, self._stack = world, authority, stack

    async def person(self, role: str, name: str) -> Person:
        certificate = certificate_of(self.authority, role, name)
        channel = open_channel(f"127.0.0.1:{self.world.control.port}", certificate)
        return Person(await self._stack.enter_async_context(channel))

    async def people(self, *people: str) -> list[Person]:
        """Of "operator bob", and so on."""
        return [await self.person(*each.split()) for each in people]

    async def holder(self, token: str) -> Person:
        trusted = grpc.ssl_channel_credentials(self.authority.certificate.read_bytes())
        address = f"127.0.0.1:{self.world.control.server.token_port}"
        channel = grpc.aio.secure_channel(address, trusted, options=OPTIONS)
        return Person(await self._stack.enter_async_context(channel), ("authorization", f"Bearer {token}"))

    async def rules(self) -> dict[str, str]:
        listed = await self.world.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)
        return {rule.spec.match.topic: rule.spec.target_cluster for rule in listed.rules}

    async def kinds(self, stream: str) -> list[str | None]:
        return [event.WhichOneof("payload") for event in reversed(await self.world.history(stream=stream))]


def rule(*kinds: access.ChangeKind.ValueType, **narrowing: Any) -> proposals.ApprovalRule:
    return proposals.ApprovalRule(kinds=kinds, narrowing=grants.Narrowing(**narrowing) if narrowing else None)


@asynccontextmanager
async def approving(
    database: str, events_topic: str, clusters: dict[str, KafkaCluster], authority: Authority, issuer: TokenIssuer
) -> AsyncIterator[Mesh]:
    """Control on these clusters; Ada is an admin."""
    home = next(iter(clusters.values()))
    made = World(
        database, home.bootstrap, events_topic,
        rpc_tls_folder=certificate_of(authority, "control", "control-1").folder, token_listen="127.0.0.1:0",
        token_keys_timeout_ms=20_000, token_issuers=(PeopleIssuer(issuer=issuer.url, audience=("mesh",)),),
    )  # fmt: skip
    made.caller = certificate_of(authority, "admin", "ada")
    async with made as world, AsyncExitStack() as stack:
        for name, cluster in clusters.items():
            await world.register(name, cluster.bootstrap)
        yield Mesh(world, authority, stack)
