"""Control as one process: its parts, how they start, lead, fall back and stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import structlog

from mesh.lifecycle import Lifecycle
from mesh.rpc import (
    admin_grpc,
    audit_grpc,
    discovery_grpc,
    instances_grpc,
    pipelines_grpc,
    profiles_grpc,
    record_rules_grpc,
    replays_grpc,
    traffic_grpc,
    transactions_grpc,
)
from mesh.rpc.server import RpcServer
from mesh.telemetry import serve_management
from services.control.api.audit_service import AuditService
from services.control.api.calls import Calls
from services.control.api.change_control_service import ChangeControlService
from services.control.api.cluster_service import ClusterService
from services.control.api.freeze_gate import FreezeGate
from services.control.api.instance_service import InstanceService
from services.control.api.member_report_service import MemberReportService
from services.control.api.past_answers import PastAnswers
from services.control.api.pipeline_service import PipelineService
from services.control.api.profile_service import ProfileService
from services.control.api.query_service import QueryService
from services.control.api.record_rule_service import RecordRuleService
from services.control.api.replay_service import ReplayService
from services.control.api.rule_service import RuleService
from services.control.api.scheduled_calls import ScheduledCalls
from services.control.api.traffic_service import TrafficService
from services.control.api.transaction_service import TransactionService
from services.control.decisions.audit.tails import AuditTails
from services.control.decisions.change_control.freezing import Freezing
from services.control.decisions.change_control.schedules import Schedules
from services.control.decisions.clusters.commands import ClusterDecisions
from services.control.decisions.clusters.probes import Probes
from services.control.decisions.dry_runs.dry_runs import DryRuns
from services.control.decisions.members.canaries import Canaries
from services.control.decisions.members.members import Members
from services.control.decisions.members.pipelines import Pipelines
from services.control.decisions.members.registering import Registering
from services.control.decisions.members.rollouts import SWITCH_MARGIN_MS, Rollouts
from services.control.decisions.past.history import History
from services.control.decisions.past.revisions import Past
from services.control.decisions.records.commands import RecordRuleDecisions
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.replays.commands import ReplayDecisions
from services.control.decisions.replays.followers import ReplayFollowers
from services.control.decisions.replays.places import ReplayPlaceSearch
from services.control.decisions.replays.plans import ReplayPlans
from services.control.decisions.replays.progress import ReplayProgress
from services.control.decisions.replays.resets import OffsetResets
from services.control.decisions.rules.commands import RuleDecisions
from services.control.decisions.sidecars.following import OrderFollowing
from services.control.decisions.sidecars.instances import InstanceDecisions
from services.control.decisions.sidecars.orders import SidecarOrders
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.decisions.transactions.transactions import Transactions
from services.control.decisions.turns import Turns
from services.control.domain.clusters.properties import SecretPlaces
from services.control.domain.errors import Refusal
from services.control.parts import Parts
from services.control.settings import ControlSettings
from services.control.steady_clock import SteadyClock
from services.control.store.audit import AuditTrail
from services.control.store.audit_outbox import AuditPublisher
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.home_topic import Home
from services.control.store.journal import Journal
from services.control.store.leader import Leader
from services.control.store.outbox import Publisher
from services.control.store.past import PastStore
from services.control.store.record_audits import RecordAuditTable
from services.control.store.register import GatewayRegister
from services.control.store.reports import Reports
from services.control.store.snapshots import SnapshotKeeper
from services.control.store.traffic import TrafficTables
from services.control.upstream.connections import Connections
from services.control.upstream.transactions import TransactionCoordinators

FORGET_EVERY = 3600.0
"""Seconds between two clean-ups of answers that no client asks for any more, of old audit events and old reports."""
FIRST_LOOK = 5.0
"""Seconds that readiness waits to hear whether mesh.events is this mesh's own."""
SETTLE_EVERY = 2.0
"""Seconds between two checks for rollouts that no call finishes; a rollout with a running call is left alone."""

log = structlog.get_logger(__name__)


class Control:
    """The parts of control, put together."""

    def __init__(self, settings: ControlSettings, lifecycle: Lifecycle) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._database = Database(settings.database_url.get_secret_value())
        clock = SteadyClock()
        self._parts = Parts()
        self.journal = Journal(self._database, clock)
        self.reports = Reports(self._database, clock)
        self.publisher = Publisher(
            self._database,
            self.journal,
            Home(settings.home_bootstrap_servers, settings.home_properties, settings.events_topic),
            on_foreign=lambda reason: lifecycle.not_ready(reason) if reason else lifecycle.ready(),
        )
        self._snapshots = SnapshotKeeper(
            self.journal.snapshots, settings.snapshot_every, lambda: (self.journal.view, self.journal.chain)
        )
        self.audit = AuditTrail(self._database)
        self._audit_publisher = AuditPublisher(
            self._database,
            self.audit,
            Home(settings.home_bootstrap_servers, settings.home_properties, settings.audit_topic),
            settings.audit_kept_days,
        )
        self.members = Members()
        self.register = GatewayRegister(self._database)
        self._registering = Registering(self.journal, self.members, self.register)
        self.connections = Connections()
        self._turns = Turns()
        self._probes = Probes(self.journal, self.connections, settings.probe_interval_s)
        rollouts = Rollouts(self.journal, self.members, settings.hold_ms)
        own_topics = [settings.events_topic, settings.audit_topic]
        self._canaries = Canaries(self.journal, self._turns, self.members, rollouts, clock)
        self._rules = RuleDecisions(
            self.journal, self._turns, self.connections, rollouts, self._canaries, never_move=own_topics
        )
        traffic = TrafficTables(self._database)
        dry_runs = DryRuns(self.journal, self.connections, self.members, traffic, never_move=own_topics)
        self._clusters = ClusterDecisions(
            self.journal,
            self._turns,
            self.connections,
            self._probes,
            self.publisher.is_home,
            SecretPlaces(settings.secrets_folder, settings.secret_variables),
        )
        record_rules = RecordRuleDecisions(self.journal, self._turns, self.connections)
        self.record_progress = RecordProgress(lambda: self.journal.view.record_rules)
        sidecars = Sidecars(lambda: self.reports.known.instances)
        self.orders = SidecarOrders(self.journal, self.reports, sidecars)
        self._following = OrderFollowing(self.journal, sidecars)
        self.replay_followers = ReplayFollowers(self.journal, sidecars)
        self.replay_progress = ReplayProgress(self.journal, self.reports, self.replay_followers)
        plans = ReplayPlans(self.journal, self.reports, self.connections, sidecars)
        own_replays = OffsetResets(self.journal, self.reports, plans, self.orders, self._following, self.connections)
        places = ReplayPlaceSearch(self.journal, self.connections)
        self.replays = ReplayDecisions(
            self.journal,
            self.reports,
            sidecars,
            self.replay_followers,
            self.replay_progress,
            plans,
            places,
            own_replays,
        )
        calls = Calls(self.audit, FreezeGate(self.journal))
        past_store = PastStore(self._database)
        past = Past(self.journal, past_store)
        rule_service = RuleService(self.journal, self._rules, dry_runs, self._canaries, past)
        self.scheduled_calls = ScheduledCalls(calls, rule_service)
        self.schedules = Schedules(self.journal, self.scheduled_calls, clock)
        self._services: dict[str, Any] = {
            "ClusterService": ClusterService(self.journal, self._clusters, self._probes),
            "RuleService": rule_service,
            "ChangeControlService": ChangeControlService(self.journal, Freezing(self.journal), self.schedules),
            "QueryService": QueryService(
                self.journal,
                self.reports,
                self.members,
                self._probes,
                self.publisher,
                self.audit,
                self.record_progress,
                self.connections,
                PastAnswers(self.journal, past, History(past_store, self.reports), self.connections),
                self._problems,
            ),
            "InstanceService": InstanceService(
                self.journal,
                self.reports,
                InstanceDecisions(self.journal, self.reports, self.orders),
                self.orders,
                self._following,
                self.members,
                sidecars,
            ),
            "PipelineService": PipelineService(self.journal, sidecars, Pipelines(sidecars.is_alive)),
            "ProfileService": ProfileService(self.journal),
            "ReplayService": ReplayService(self.journal, self.replays, self.replay_followers, self.replay_progress),
            "MemberReportService": MemberReportService(
                self.journal, self.members, self.record_progress, settings.hold_ms + SWITCH_MARGIN_MS
            ),
            "RecordRuleService": RecordRuleService(self.journal, record_rules, self.record_progress),
            "TrafficService": TrafficService(traffic),
            "TransactionService": TransactionService(
                self.journal, Transactions(self.journal, TransactionCoordinators())
            ),
            "AuditService": AuditService(
                self.journal,
                AuditTails(self.journal, settings.record_audit_topics),
                RecordAuditTable(self._database),
            ),
        }
        self.server = RpcServer(settings.listen, self._adders(), [calls], settings.rpc_tls)
        self._leader = Leader(self._database, self.journal, self.reports, self._began_to_lead, self._lost_the_lead)

    @property
    def port(self) -> int:
        return self.server.port

    async def start(self) -> None:
        """Serves at once: reads as soon as the log is read, writes as soon as this process leads."""
        await self.server.start()
        self._parts.keep("leader", self._leader.run)
        self._parts.keep("probes", lambda: self._probes.run(self._clusters.learn))
        self._parts.keep("forgetting", self._forget)
        self._parts.keep("audit", self.audit.run)
        self._parts.keep("registering", self._registering.run)
        self._parts.keep("schedules", self.schedules.run)
        self._parts.keep("canaries", self._canaries.run)
        self._parts.keep("orders", self.orders.run)
        self._parts.keep("followers of orders", self._following.run)
        self._parts.keep("replays", self.replays.run)
        self._parts.keep("followers of replays", self.replay_followers.run)
        self._parts.keep("settling", self._settle_strays)

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
                log.warning("stopped before everything was published; the next start goes on there")
        await self.audit.flush(grace / 8)
        if not self.journal.why_not_leading:
            try:
                async with asyncio.timeout(grace / 4):
                    await self._snapshots.keep()
            except TimeoutError:
                log.warning("stopped without a snapshot; the next start reads more of the log")
        await self._parts.stop_all(grace / 4)
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
        await self.server.set_serving(True)
        with suppress(TimeoutError):  # a home cluster that is away keeps nobody from deciding
            async with asyncio.timeout(FIRST_LOOK):
                await self.publisher.looked.wait()
        if not self.publisher.foreign:
            self._lifecycle.ready()

    def _lost_the_lead(self, reason: str) -> None:
        self.replay_followers.lost_the_lead()
        self._following.lost_the_lead()
        self._parts.stop("publisher", "audit publisher", "snapshots")
        self._lifecycle.not_ready(reason)
        self._parts.keep("serving", lambda: self.server.set_serving(False))

    async def _settle_strays(self) -> None:
        """A rollout whose first event was stored although its call failed (the answer of the database was lost) has
        nobody who sees it through.
        """
        while True:
            await asyncio.sleep(SETTLE_EVERY)
            if self.journal.view.rollout is None or self.journal.why_not_leading:
                continue
            try:
                await self._rules.settle()
            except (Refusal, StoreUnavailableError) as error:
                log.info("control checks a pending rollout again later, as this check failed", reason=str(error))

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(FORGET_EVERY)
            try:
                await self.journal.store.forget_old_answers()
                await self.audit.forget(self._settings.audit_kept_days)
                await self.reports.forget(self._settings.reports_kept_days)
            except StoreUnavailableError as error:
                log.warning("old answers, audit events and reports are kept until the next clean-up", reason=str(error))

    def _problems(self) -> list[str]:
        """The problems that the operator has to know, a sentence each."""
        if self.journal.why_not_leading:
            return [f"this control does not lead, and hears no members: {self.journal.why_not_leading}"]
        troubles = {
            "no change reaches gateways": self.publisher.trouble,
            "audit events are kept in PostgreSQL alone": self._audit_publisher.trouble,
        }
        return [*(f"{what}: {why}" for what, why in troubles.items() if why), *self._parts.problems]

    def _adders(self) -> dict[str, Any]:
        adders = {
            "ClusterService": admin_grpc.add_ClusterServiceServicer_to_server,
            "RuleService": admin_grpc.add_RuleServiceServicer_to_server,
            "ChangeControlService": admin_grpc.add_ChangeControlServiceServicer_to_server,
            "QueryService": admin_grpc.add_QueryServiceServicer_to_server,
            "InstanceService": instances_grpc.add_InstanceServiceServicer_to_server,
            "MemberReportService": discovery_grpc.add_MemberReportServiceServicer_to_server,
            "PipelineService": pipelines_grpc.add_PipelineServiceServicer_to_server,
            "ProfileService": profiles_grpc.add_ProfileServiceServicer_to_server,
            "ReplayService": replays_grpc.add_ReplayServiceServicer_to_server,
            "RecordRuleService": record_rules_grpc.add_RecordRuleServiceServicer_to_server,
            "AuditService": audit_grpc.add_AuditServiceServicer_to_server,
            "TrafficService": traffic_grpc.add_TrafficServiceServicer_to_server,
            "TransactionService": transactions_grpc.add_TransactionServiceServicer_to_server,
        }
        return {
            f"mesh.v1.{name}": lambda server, name=name, add=add: add(self._services[name], server)
            for name, add in adders.items()
        }


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
