"""The connection to control: stubs, a deadline on every call, the actor, and lists that span pages."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from mesh.rpc import acls as acls_pb
from mesh.rpc import (
    acls_grpc,
    admin,
    admin_grpc,
    audit,
    audit_grpc,
    clients_grpc,
    drains_grpc,
    events,
    fail_backs_grpc,
    grants_grpc,
    instances_grpc,
    lineage_grpc,
    listeners_grpc,
    move_certificates_grpc,
    pipelines,
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
from mesh.rpc import clients as clients_pb
from mesh.rpc import instances as instances_pb
from mesh.rpc import record_rules as record_rules_pb
from mesh.rpc import replays as replays_pb
from mesh.rpc import tenants as tenants_pb
from mesh.rpc.channels import open_blocking_channel, open_token_channel
from mesh.rpc.tls import RpcTls
from meshctl.contexts import BearerToken
from meshctl.endpoints import Endpoint
from meshctl.failures import ExitCode, MeshctlError

PAGE_SIZE = 1000  # the server's maximum
ACTOR_METADATA, ON_BEHALF_OF_METADATA = "x-mesh-actor", "x-mesh-on-behalf-of"
BREAK_GLASS_METADATA = "x-mesh-break-glass-bin"
WATCH_SECONDS = 600.0  # a watch is opened again after this long, so that even it has a deadline

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


def actor() -> str:
    """The actor of the calls: user@host, in characters that metadata can carry."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}".encode("ascii", "replace").decode()


class Connection:
    """Calls to control. Not for several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeout: float,
        proof: RpcTls | BearerToken | None = None,
        on_behalf_of: str = "",
        break_glass: str = "",
    ) -> None:
        """`proof`: how the caller proves who it is. `break_glass`: why changes need no second person now.

        RpcTlsError if a file of the proof can't be used.
        """
        self.endpoint = endpoint
        self._timeout = timeout
        other = ((ON_BEHALF_OF_METADATA, on_behalf_of),) if on_behalf_of else ()
        glass = ((BREAK_GLASS_METADATA, break_glass.encode()),) if break_glass else ()
        self._metadata = ((ACTOR_METADATA, actor()), *other, *glass)
        if isinstance(proof, BearerToken):
            self._channel = open_token_channel(endpoint.address, proof.token, proof.ca)
        else:
            self._channel = open_blocking_channel(endpoint.address, proof)
        self.clusters = admin_grpc.ClusterServiceStub(self._channel)
        self.rules = admin_grpc.RuleServiceStub(self._channel)
        self.decisions = admin_grpc.QueryServiceStub(self._channel)
        self.changes = admin_grpc.ChangeControlServiceStub(self._channel)
        self.approvals = proposals_grpc.ApprovalServiceStub(self._channel)
        self.access = grants_grpc.AccessServiceStub(self._channel)
        self.record_rules = record_rules_grpc.RecordRuleServiceStub(self._channel)
        self.instances = instances_grpc.InstanceServiceStub(self._channel)
        self.replays = replays_grpc.ReplayServiceStub(self._channel)
        self.pipelines = pipelines_grpc.PipelineServiceStub(self._channel)
        self.subscriptions = subscriptions_grpc.SubscriptionServiceStub(self._channel)
        self.profiles = profiles_grpc.ProfileServiceStub(self._channel)
        self.topics = topics_grpc.TopicServiceStub(self._channel)
        self.groups = topics_grpc.GroupServiceStub(self._channel)
        self.topic_moves = topic_moves_grpc.TopicMoveServiceStub(self._channel)
        self.move_certificates = move_certificates_grpc.TopicMoveCertificateServiceStub(self._channel)
        self.rehearsals = rehearsals_grpc.RehearsalServiceStub(self._channel)
        self.drains = drains_grpc.DrainServiceStub(self._channel)
        self.standbys = standbys_grpc.StandbyServiceStub(self._channel)
        self.fail_backs = fail_backs_grpc.FailBackServiceStub(self._channel)
        self.audit = audit_grpc.AuditServiceStub(self._channel)
        self.clients = clients_grpc.ClientServiceStub(self._channel)
        self.lineage = lineage_grpc.LineageServiceStub(self._channel)
        self.listeners = listeners_grpc.ListenerServiceStub(self._channel)
        self.traffic = traffic_grpc.TrafficServiceStub(self._channel)
        self.acls = acls_grpc.AclServiceStub(self._channel)
        self.quotas = quotas_grpc.QuotaServiceStub(self._channel)
        self.protection = protection_grpc.ProtectionServiceStub(self._channel)
        self.validation = validation_grpc.ValidationServiceStub(self._channel)
        self.tenants = tenants_grpc.TenantServiceStub(self._channel)
        self.users = users_grpc.UserServiceStub(self._channel)
        self.transactions = transactions_grpc.TransactionServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def call(
        self, method: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request, at_least: float = 0.0
    ) -> Response:
        """One call, bounded by the time-out of the command line, but at least by `at_least` seconds."""
        return method(request, timeout=max(self._timeout, at_least), metadata=self._metadata)

    def pages(self, method: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request) -> Iterator[Response]:
        """The pages of a list, each asked for when the one before has been taken."""
        asked: Any = request  # every List request has a page_token, and every response a next_page_token
        while True:
            page: Any = self.call(method, request)
            yield page
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    def all_clusters(self) -> list[admin.Cluster]:
        """Every cluster, by ordinal."""
        pages = self.pages(self.clusters.ListClusters, admin.ListClustersRequest(page_size=PAGE_SIZE))
        return [each for page in pages for each in page.clusters]

    def all_jobs(self) -> list[pipelines.ListedJob]:
        """The jobs of all pipelines that report, by pipeline and name."""
        pages = self.pages(self.pipelines.ListJobs, pipelines.ListJobsRequest(page_size=PAGE_SIZE))
        return [each for page in pages for each in page.jobs]

    def all_scheduled_changes(self) -> list[admin.ScheduledChange]:
        """The changes that are still to come, soonest first."""
        request = admin.ListScheduledChangesRequest(page_size=PAGE_SIZE)
        pages = self.pages(self.changes.ListScheduledChanges, request)
        return [each for page in pages for each in page.scheduled_changes]

    def all_rules(self) -> tuple[list[admin.Rule], int]:
        """Every rule in order, and the revision of the set."""
        found: list[admin.Rule] = []
        revision: int | None = None
        for page in self.pages(self.rules.ListRules, admin.ListRulesRequest(page_size=PAGE_SIZE)):
            if revision is not None and page.revision != revision:
                raise MeshctlError(
                    "the rules changed while they were listed; ask again", ExitCode.CONFLICT, status="ABORTED"
                )
            revision = page.revision
            found += page.rules
        assert revision is not None  # there is a first page, though it may be empty
        return found, revision

    def all_record_rules(self) -> list[record_rules_pb.RecordRule]:
        """Every mirror and content rule, by id, with how far it is."""
        pages = self.pages(
            self.record_rules.ListRecordRules, record_rules_pb.ListRecordRulesRequest(page_size=PAGE_SIZE)
        )
        return [each for page in pages for each in page.record_rules]

    def all_tenants(self, at_revision: int = 0) -> list[tenants_pb.Tenant]:
        """As they were at the revision; 0: as they are now. A control of an older release has none."""
        request = tenants_pb.ListTenantsRequest(at_revision=at_revision, page_size=PAGE_SIZE)
        try:
            return [each for page in self.pages(self.tenants.ListTenants, request) for each in page.tenants]
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return []
            raise

    def acl_policy(self, at_revision: int = 0) -> acls_pb.AclPolicy:
        """The whole policy, its ACLs in the order of lists; 0: as it is now."""
        request = acls_pb.ListAclsRequest(at_revision=at_revision, page_size=PAGE_SIZE)
        pages = list(self.pages(self.acls.ListAcls, request))
        first = pages[0]
        found = [each for page in pages for each in page.acls]
        return acls_pb.AclPolicy(mode=first.mode, acls=found, super_users=first.super_users, revision=first.revision)

    def all_clients(self, request: clients_pb.ListClientsRequest) -> clients_pb.ListClientsResponse:
        """All pages of the clients that a request asks for, as one."""
        request.page_size = PAGE_SIZE
        pages = list(self.pages(self.clients.ListClients, request))
        return clients_pb.ListClientsResponse(
            clients=[each for page in pages for each in page.clients],
            left_out=pages[-1].left_out,
            addresses_hidden=any(page.addresses_hidden for page in pages),
        )

    def all_instances(
        self, sidecar: str = "", group: str = ""
    ) -> list[tuple[events.ConsumerInstance, instances_pb.InstanceStatus | None]]:
        """Consumer instances by name, those of one sidecar or group only where it is said; and how each does."""
        request = instances_pb.ListInstancesRequest(page_size=PAGE_SIZE, sidecar=sidecar, group=group)
        pages = list(self.pages(self.instances.ListInstances, request))
        statuses = {each.name: each for page in pages for each in page.statuses}
        return [(each, statuses.get(each.name)) for page in pages for each in page.instances]

    def orders(self, target: str, count: int, *, open_only: bool = False) -> list[events.SidecarOrder]:
        """The last `count` orders for a target, or for all where it is empty; newest first."""
        request = instances_pb.ListOrdersRequest(page_size=min(count, PAGE_SIZE), target=target, open_only=open_only)
        found: list[events.SidecarOrder] = []
        for page in self.pages(self.instances.ListOrders, request):
            found += page.orders
            if len(found) >= count:
                break
        return found[:count]

    def all_replays(self, count: int, *, open_only: bool = False) -> list[replays_pb.Replay]:
        """The last `count` replays, newest first."""
        request = replays_pb.ListReplaysRequest(page_size=min(count, PAGE_SIZE), open_only=open_only)
        found: list[replays_pb.Replay] = []
        for page in self.pages(self.replays.ListReplays, request):
            found += page.replays
            if len(found) >= count:
                break
        return found[:count]

    def watch_replay(self, name: str, *, partitions: bool = False) -> Iterator[replays_pb.Replay]:
        """A replay after each change, until it ends, or the watch's deadline or a failure ends it. `partitions`: those
        that changed, however many there are.
        """
        request = replays_pb.WatchReplayRequest(name=name, partitions=partitions)
        yield from self.replays.WatchReplay(request, timeout=WATCH_SECONDS, metadata=self._metadata)

    def history(self, about: admin.ListHistoryRequest, count: int) -> list[admin.HistoryEntry]:
        """The last `count` decisions of what `about` asks for, newest first."""
        request = admin.ListHistoryRequest()
        request.CopyFrom(about)
        found: list[admin.HistoryEntry] = []
        while len(found) < count:
            request.page_size = min(count - len(found), PAGE_SIZE)
            page = self.call(self.decisions.ListHistory, request)
            found += page.entries
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return found

    def tail(self, request: audit.TailAuditRequest) -> Iterator[audit.TailAuditResponse]:
        """The audit events of records, until the stream ends, or the deadline of a watch."""
        yield from self.audit.Tail(request, timeout=WATCH_SECONDS, metadata=self._metadata)

    def status(self) -> admin.MeshStatus:
        """Revision, members, clusters and instances as control sees them."""
        return self.call(self.decisions.GetStatus, admin.GetStatusRequest())

    def watch(self, from_position: int) -> Iterator[events.Event]:
        """Events from a position on, until the watch's deadline or a failure ends it."""
        request = admin.WatchEventsRequest(from_position=from_position)
        yield from self.decisions.WatchEvents(request, timeout=WATCH_SECONDS, metadata=self._metadata)
