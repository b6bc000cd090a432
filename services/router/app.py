"""Puts the router together: the follower of the log, the discovery server, the reports to control."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import grpc

from mesh import VERSION
from mesh.lifecycle import Lifecycle
from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import admin, discovery
from mesh.rpc.admission import Admission
from mesh.rpc.server import RpcServer
from mesh.telemetry import serve_management
from services.router import metrics
from services.router.agents.bulletin import Bulletin
from services.router.agents.follower import Follower
from services.router.agents.forwarding_lead import ForwardingLead
from services.router.agents.rule_book import RuleBook
from services.router.change import Readiness
from services.router.discovery.changes import NAME as CHANGES_NAME
from services.router.discovery.changes import GatewayChangeService
from services.router.discovery.reports import Reporter
from services.router.discovery.roster import HoldBound, Roster
from services.router.discovery.service import NAME, DiscoveryService
from services.router.discovery.session import Ending
from services.router.discovery.users import NAME as USERS_NAME
from services.router.discovery.users import UserDiscoveryService, UserRelay
from services.router.settings import RouterSettings

STOP_GRACE = 1.0
"""Seconds that open calls get when the router stops; data planes have been informed by then."""
STOPPING = Ending(grpc.StatusCode.UNAVAILABLE, "stopping", "the router stops; another one, or this one soon, goes on")
CUT_OFF = Ending(grpc.StatusCode.UNAVAILABLE, "cut off", "")
"""This router may miss decisions: its gateways look for a router that reads the log."""


async def serve(settings: RouterSettings, lifecycle: Lifecycle) -> None:
    """Runs the router until `lifecycle` says stop."""
    bulletin = Bulletin(time.monotonic)
    hold = HoldBound(settings.hold_ms)
    roster = Roster(settings.member_name, bulletin, time.monotonic, hold)
    readiness = Readiness(lifecycle, lambda reason: roster.end_all(replace(CUT_OFF, reason=f"cut off: {reason}")))
    rule_book = RuleBook()
    follower = Follower(settings, bulletin, rule_book, readiness)
    service = DiscoveryService(roster, follower.read_to_end)
    relay = UserRelay(settings.control_addresses, settings.rpc_tls)
    changes = GatewayChangeService(settings.control_addresses, settings.rpc_tls)
    server = RpcServer(
        settings.listen,
        {NAME: service.add_to, USERS_NAME: UserDiscoveryService(relay).add_to, CHANGES_NAME: changes.add_to},
        [Admission(lambda method: metrics.refused_calls.labels(method).inc())],
        settings.rpc_tls,
    )
    management = serve_management(settings.metrics_listen, lifecycle)
    lead = ForwardingLead(settings, rule_book, roster.change)
    reporter = Reporter(
        settings.control_addresses,
        lambda: _report(settings, bulletin, roster, lead, readiness.cut_off_reason),
        roster.clients,
        roster.acknowledged.known,
        roster.divide,
        roster.change,
        hold,
        settings.rpc_tls,
    )
    await server.start()
    parts = (follower.run(), reporter.run(), relay.run(), readiness.mirror(server), lead.run())
    running = [asyncio.create_task(part) for part in parts]
    stopping = asyncio.create_task(lifecycle.stopping.wait())
    try:
        done, _ = await asyncio.wait({stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
        for failed in done - {stopping}:
            failed.result()
    finally:
        roster.end_all(STOPPING)
        for task in running:
            task.cancel()
        await asyncio.gather(server.stop(STOP_GRACE), *running, return_exceptions=True)
        await changes.close()
        management.stop()


def _report(
    settings: RouterSettings, bulletin: Bulletin, roster: Roster, lead: ForwardingLead, cut_off_reason: str
) -> discovery.RouterReport:
    latest = bulletin.latest
    return discovery.RouterReport(
        router=admin.Member(
            name=settings.member_name,
            kind=admin.MEMBER_KIND_ROUTER,
            version=VERSION,
            address=settings.listen,
            table_format=TABLE_FORMAT,
            revision=latest.state.effective.revision if latest else 0,
            phase=admin.MEMBER_PHASE_APPLIED if latest else admin.MEMBER_PHASE_UNSPECIFIED,
            phase_reason=cut_off_reason,
        ),
        members=roster.members(),
        quota_parts=roster.quota_parts(),
        standby_reports=roster.standby_reports(),
        departed=roster.departed(),
        departed_processes=roster.departed_processes(),
        record_rules=lead.progress(),
    )
