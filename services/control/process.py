"""Control as one process: its parts, how they start, lead, fall back and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType

import grpc.aio
import structlog

from mesh.lifecycle import Lifecycle
from mesh.member_keys import MemberKeys
from mesh.rpc import (
    admin_grpc,
    audit_grpc,
    clients_grpc,
    discovery_grpc,
    grants_grpc,
    instances_grpc,
    kafka_changes_grpc,
    lineage_grpc,
    pipelines_grpc,
    profiles_grpc,
    proposals_grpc,
    record_rules_grpc,
    replays_grpc,
    subscriptions_grpc,
    topics_grpc,
    traffic_grpc,
    transactions_grpc,
    users_grpc,
)
from mesh.rpc.server import RpcServer
from mesh.rpc.token_callers import TokenCallers
from mesh.telemetry import serve_management
from services.control.api.access_gate import AccessGate
from services.control.api.access_service import AccessService
from services.control.api.approval_gate import ApprovalGate
from services.control.api.approval_plans import ApprovalPlans
from services.control.api.approval_service import ApprovalService
from services.control.api.approved_calls import ApprovedCalls
from services.control.api.audit_service import AuditService
from services.control.api.calls import Calls
from services.control.api.change_control_service import ChangeControlService
from services.control.api.client_service import ClientService
from services.control.api.cluster_service import ClusterService
from services.control.api.freeze_gate import FreezeGate
from services.control.api.group_service import GroupService
from services.control.api.instance_service import InstanceService
from services.control.api.kafka_change_service import KafkaChangeService
from services.control.api.lag_answers import LagAnswers
from services.control.api.lineage_service import LineageService
from services.control.api.member_report_service import MemberReportService
from services.control.api.past_answers import PastAnswers
from services.control.api.pipeline_service import PipelineService
from services.control.api.policy_services import policy_services
from services.control.api.profile_service import ProfileService
from services.control.api.query_service import QueryService
from services.control.api.record_rule_service import RecordRuleService
from services.control.api.replay_service import ReplayService
from services.control.api.rule_service import RuleService
from services.control.api.scheduled_calls import ScheduledCalls
from services.control.api.subscription_service import SubscriptionService
from services.control.api.traffic_service import TrafficService
from services.control.api.transaction_service import TransactionService
from services.control.api.user_service import UserService
from services.control.api.user_verifier_service import UserVerifierService
from services.control.decisions.access.commands import AccessDecisions
from services.control.decisions.change_control.proposals import ProposalDecisions
from services.control.decisions.change_control.schedules import Schedules
from services.control.decisions.clusters.commands import ClusterDecisions
from services.control.decisions.dry_runs.dry_runs import DryRuns
from services.control.decisions.lineage.gathering import Gathering
from services.control.decisions.members.formats import too_old
from services.control.decisions.members.members import Members
from services.control.decisions.members.registering import Registering
from services.control.decisions.members.rollouts import SWITCH_MARGIN_MS
from services.control.decisions.past.revisions import Past
from services.control.decisions.records.commands import RecordRuleDecisions
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.replays.commands import ReplayDecisions
from services.control.decisions.rules.commands import RuleDecisions
from services.control.decisions.sidecars.orders import SidecarOrders
from services.control.decisions.sidecars.subscriptions import SubscriptionDecisions
from services.control.decisions.topics.lag_sampling import LagSampling
from services.control.decisions.topics.looking import Looking
from services.control.decisions.turns import Turns
from services.control.decisions.users.commands import UserDecisions
from services.control.domain.clusters.properties import SecretPlaces
from services.control.domain.errors import Refusal
from services.control.moving import Moving
from services.control.parts import Parts
from services.control.settings import ControlSettings
from services.control.steady_clock import SteadyClock
from services.control.store.audit import AuditTrail
from services.control.store.audit_outbox import AuditPublisher
from services.control.store.cleaning import clean_up
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.home_topic import Home
from services.control.store.journal import Journal
from services.control.store.lag import LagTables
from services.control.store.leader import Leader
from services.control.store.lineage import LineageTables
from services.control.store.log_signing import LogSigning
from services.control.store.outbox import Publisher
from services.control.store.receipts import ReceiptTable
from services.control.store.register import GatewayRegister
from services.control.store.reports import Reports
from services.control.store.snapshots import SnapshotKeeper
from services.control.store.traffic import TrafficTables
from services.control.store.verifiers import UserVerifiers
from services.control.upstream.connections import Connections

FIRST_LOOK = 5.0
"""Seconds that readiness waits to hear whether mesh.events is this mesh's own."""

log = structlog.get_logger(__name__)


class Control:
    """The parts of control, put together."""

    def __init__(self, settings: ControlSettings, lifecycle: Lifecycle) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._parts = Parts()
        clock = SteadyClock()
        turns = self._turns = Turns()
        database = self._database = Database(settings.database_url.get_secret_value())
        keys = None if settings.rpc_tls is None else MemberKeys(settings.rpc_tls)
        journal = self.journal = Journal(database, clock, keys, settings.vouched_for)
        self._log_signing = None if keys is None else LogSigning(journal, keys)
        reports = self.reports = Reports(database, clock)
        connections = self.connections = Connections()
        self.audit = AuditTrail(database)
        self.publisher = Publisher(
            database,
            journal,
            Home(settings.home_bootstrap_servers, settings.home_properties, settings.events_topic),
            on_foreign=lambda reason: lifecycle.not_ready(reason) if reason else lifecycle.ready(),
        )
        self._audit_publisher = AuditPublisher(
            database,
            self.audit,
            Home(settings.home_bootstrap_servers, settings.home_properties, settings.audit_topic),
            settings.audit_kept_days,
        )
        self._snapshots = SnapshotKeeper(
            journal.snapshots, settings.snapshot_every, lambda: (journal.view, journal.chain)
        )
        own_topics = [settings.events_topic, settings.audit_topic]
        secrets = SecretPlaces(settings.secrets_folder, settings.secret_variables)
        members = self.members = Members()

        self._clusters = ClusterDecisions(
            journal,
            turns,
            connections,
            self.publisher.is_home,
            secrets,
            settings.probe_interval_s,
            lambda table_format: too_old(members.all(), table_format),
        )
        self.register = GatewayRegister(database)
        self._verifiers = UserVerifiers(database)
        self._user_verifiers = UserVerifierService(journal, self._verifiers)
        self._registering = Registering(journal, members, self.register)
        self._rules = RuleDecisions(journal, turns, connections, members, clock, settings.hold_ms, own_topics)
        self.orders = SidecarOrders(journal, reports)
        self.replays = ReplayDecisions(journal, reports, self.orders, connections)
        self.replay_followers = self.replays.followers
        traffic = TrafficTables(database)
        record_progress = RecordProgress(lambda: journal.view.record_rules)
        past = Past(journal, database)
        access = AccessGate(
            journal, reports, settings.first_admins, counts_certificates=settings.certificate_roles_count
        )
        self._tokens = TokenCallers(settings) if settings.token_issuers else None
        dry_runs = DryRuns(journal, connections, members, traffic, own_topics)
        plans = ApprovalPlans(journal, dry_runs, past)
        freeze = FreezeGate(journal)
        self.proposals = ProposalDecisions(journal, clock)
        approvals = ApprovalGate(journal, reports, access, self.proposals, plans)
        calls = Calls(self.audit, access, freeze, approvals, self._tokens)
        self.approved_calls = ApprovedCalls(journal, calls, access, freeze, plans)
        rule_service = RuleService(journal, self._rules, dry_runs, past)
        self.scheduled_calls = ScheduledCalls(calls, rule_service, access)
        self.schedules = Schedules(journal, self.scheduled_calls, clock)
        query_service = QueryService(
            journal,
            reports,
            members,
            self._clusters.probes,
            self.publisher,
            self.audit,
            record_progress,
            connections,
            PastAnswers(journal, past, reports, connections),
            self._problems,
        )
        subscriptions = SubscriptionDecisions(journal)
        looking = Looking(journal, connections)
        self.moving = Moving(journal, connections, self._rules, members, record_progress, looking, own_topics, keys)
        self._lag = LagTables(database, clock)
        lag_bounds = settings.lag_interval_s, settings.lag_partitions
        self._lag_sampling = LagSampling(looking, self._clusters.probes, self._lag, clock, *lag_bounds)
        lineage = LineageTables(database)
        self._gathering = Gathering(
            journal,
            members,
            record_progress,
            self.orders.sidecars,
            lineage,
            lambda: self._lag_sampling.read,
            clock,
            settings.lineage_edges,
            settings.lineage_kept_days,
        )
        by_kafka = settings.changes_by_kafka_tools
        longest_hold_ms = settings.hold_ms + SWITCH_MARGIN_MS
        services = (
            (admin_grpc, ClusterService(journal, self._clusters)),
            (admin_grpc, rule_service),
            (admin_grpc, ChangeControlService(journal, self.schedules)),
            (admin_grpc, query_service),
            (proposals_grpc, ApprovalService(journal, self.proposals, self.approved_calls)),
            (grants_grpc, AccessService(journal, AccessDecisions(journal, settings.first_admins), access)),
            (instances_grpc, InstanceService(journal, reports, self.orders, members, subscriptions)),
            (subscriptions_grpc, SubscriptionService(journal, subscriptions, self.orders.sidecars)),
            (clients_grpc, ClientService(journal, members, access, settings.client_addresses)),
            (
                discovery_grpc,
                MemberReportService(journal, members, record_progress, self.moving.standby_reports, longest_hold_ms),
            ),
            (pipelines_grpc, PipelineService(journal, self.orders.sidecars)),
            (profiles_grpc, ProfileService(journal)),
            (replays_grpc, ReplayService(journal, self.replays)),
            (
                record_rules_grpc,
                RecordRuleService(journal, RecordRuleDecisions(journal, turns, connections), record_progress),
            ),
            *self.moving.services,
            (topics_grpc, GroupService(journal, looking, LagAnswers(self._lag, clock, *lag_bounds))),
            (audit_grpc, AuditService(journal, database, settings.record_audit_topics)),
            (traffic_grpc, TrafficService(traffic, ReceiptTable(database))),
            (lineage_grpc, LineageService(journal, lineage, traffic, access, clock, settings.lineage_edges)),
            (transactions_grpc, TransactionService(journal)),
            (kafka_changes_grpc, KafkaChangeService(journal, calls, self.approved_calls.method_of, allowed=by_kafka)),
            *policy_services(journal, members, connections),
            (users_grpc, UserService(journal, UserDecisions(journal, self._verifiers))),
            (users_grpc, self._user_verifiers),
        )
        self.approved_calls.serve(each for _, each in services)
        adders = {f"mesh.v1.{type(each).__name__}": _adder(stubs, each) for stubs, each in services}
        self.server = RpcServer(settings.listen, adders, [calls], settings.rpc_tls, settings.token_listen)
        self._leader = Leader(database, journal, reports, self._began_to_lead, self._lost_the_lead)

    @property
    def port(self) -> int:
        return self.server.port

    async def start(self) -> None:
        """Serves at once: reads as soon as the log is read, writes as soon as this process leads."""
        await self.server.start()
        days, kept = self._settings.audit_kept_days, self._settings.reports_kept_days
        deletions = [
            self.journal.store.forget_old_answers,
            lambda: self.audit.forget(days),
            lambda: self.reports.forget(kept),
            self._verifiers.forget_deleted,
            self._lag.forget,
            self._gathering.forget,
        ]
        for name, run in {
            "leader": self._leader.run,
            "probes": self._clusters.run,
            "forgetting": lambda: clean_up(deletions),
            "audit": self.audit.run,
            "registering": self._registering.run,
            "schedules": self.schedules.run,
            "proposals": lambda: self.proposals.run(self.approved_calls),
            "canaries": self._rules.canaries.run,
            "orders": self.orders.run,
            "followers of orders": self.orders.following.run,
            "replays": self.replays.run,
            "followers of replays": self.replays.followers.run,
            "settling": self._rules.run,
            **self.moving.loops,
        }.items():
            self._parts.keep(name, run)

    async def stop(self) -> None:
        """Running calls end, what is decided is published, then everything is put away; each step is bounded."""
        grace = self._settings.stop_grace_s
        await self.server.set_serving(False)
        await self._turns.drain(grace)
        await self.server.stop(grace / 4)
        if "publisher" in self._parts and not self.publisher.trouble:
            try:
                async with asyncio.timeout(grace / 4):
                    await self.publisher.caught_up(self.journal.view.position)
            except TimeoutError:
                log.warning("control stopped before all events were published; the next start publishes the rest")
        await self.audit.flush(grace / 8)
        if not self.journal.why_not_leading:
            try:
                async with asyncio.timeout(grace / 4):
                    await self._snapshots.keep()
            except TimeoutError:
                log.warning("control stopped without a snapshot; the next start reads more of the log")
        await self._parts.stop_all(grace / 4)
        if self._tokens is not None:
            await self._tokens.close()
        self.publisher.close()
        self._audit_publisher.close()
        self.connections.close()
        await self._database.close()

    async def _began_to_lead(self) -> None:
        self.orders.began_to_lead()
        self.replays.began_to_lead()
        # before whatever waits for its turn: a change that came first waits for gateways, which hear of it in Kafka
        self._parts.keep("publisher", self.publisher.run)
        self._parts.keep("audit publisher", self._audit_publisher.run)
        try:
            await self._registering.recall()
            await self._rules.settle()
        except (Refusal, StoreUnavailableError) as error:
            log.warning("a pending rollout is not settled yet; the next change does it", reason=str(error))
        self._parts.keep("snapshots", self._snapshots.run)
        if self._log_signing is not None:
            self._parts.keep("signing of the log", self._log_signing.run)
        self._parts.keep("samples of lag", self._lag_sampling.run)
        self._parts.keep("lineage", self._gathering.run)
        await self.server.set_serving(True)
        with suppress(TimeoutError):  # a home cluster that is away keeps nobody from deciding
            async with asyncio.timeout(FIRST_LOOK):
                await self.publisher.looked.wait()
        if not self.publisher.foreign:
            self._lifecycle.ready()

    def _lost_the_lead(self, reason: str) -> None:
        self.replays.followers.lost_the_lead()
        self.orders.following.lost_the_lead()
        self._parts.stop("publisher", "audit publisher", "snapshots", "signing of the log", "samples of lag", "lineage")
        self._lifecycle.not_ready(reason)
        self._parts.keep("serving", lambda: self.server.set_serving(False))

    def _problems(self) -> list[str]:
        """The problems that the operator has to know, a sentence each."""
        if self.journal.why_not_leading:
            return [f"this control does not lead, and hears no members: {self.journal.why_not_leading}"]
        troubles = {
            "no change reaches gateways": self.publisher.trouble,
            "audit events are kept in PostgreSQL alone": self._audit_publisher.trouble,
            "verifiers of users are lost": self._user_verifiers.trouble,
        }
        return [*(f"{what}: {why}" for what, why in troubles.items() if why), *self._parts.problems]


def _adder(stubs: ModuleType, service: object) -> Callable[[grpc.aio.Server], None]:
    """The generated function that adds a service to a server; `stubs` is the module that has this function."""
    return partial(getattr(stubs, f"add_{type(service).__name__}Servicer_to_server"), service)


async def serve(settings: ControlSettings, lifecycle: Lifecycle) -> None:
    """Runs control until `lifecycle` is stopping."""
    control = Control(settings, lifecycle)
    management = serve_management(settings.metrics_listen, lifecycle)
    try:
        await control.start()
        log.info("control serves", listen=settings.listen, management=settings.metrics_listen)
        await lifecycle.stopping.wait()
    finally:
        await control.stop()
        management.stop()
