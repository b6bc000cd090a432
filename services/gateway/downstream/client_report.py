"""The report to control: the clients of this gateway and the topics, groups and transactional ids that they use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from mesh.rpc import admin, discovery
from services.gateway.downstream.answers import Answers
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.tables import Ends, RunningCanary, Tables
from services.gateway.requests.memory import Session
from services.gateway.requests.uses import GROUPS_REMEMBERED, IDS_REMEMBERED, TOPICS_REMEMBERED, shortened

MAX_CLIENTS = 1000
MAX_NAMES = 20_000
"""Most names of topics, groups and transactional ids in one report. Names of the last clients are left out."""

CLIENTS_EVERY_S = 3.0
CANARY_EVERY_S = 1.0
"""The interval of reports while a table is tried: the outcomes of requests decide whether the canary goes on."""


async def report_clients(connections: Iterable[ClientConnection], tables: Tables, answers: Answers) -> None:
    """Reports the clients while they change, until cancelled."""
    reported: discovery.ClientReport | None = None
    while True:
        report = client_report((connection.session for connection in connections), tables.canary)
        if report != reported:
            answers.add(discovery.WatchRequest(clients=report))
            reported = report
        await asyncio.sleep(CLIENTS_EVERY_S if tables.canary is None else CANARY_EVERY_S)


@dataclass(slots=True)
class _Kind:
    """The kind of a connection: operators need not tell connections of one kind apart."""

    connections: int = 0
    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    transactional_ids: set[str] = field(default_factory=set)

    def add(self, session: Session) -> None:
        self.connections += 1
        self.topics.update(session.uses.topics)
        self.groups.update(session.uses.groups)
        self.transactional_ids.update(session.uses.transactional_ids)


def client_report(sessions: Iterable[Session], canary: RunningCanary | None = None) -> discovery.ClientReport:
    """Equal for equal clients, in whatever order they came. While a table is tried it says how requests end."""
    kinds: dict[tuple[str, str, str, str], _Kind] = {}
    total = 0
    for session in sessions:
        who = (shortened(session.client_id or ""), _software(session), session.address, session.principal)
        kinds.setdefault(who, _Kind()).add(session)
        total += 1
    room = MAX_NAMES
    report = discovery.ClientReport(total=total, kinds=len(kinds))
    if canary is not None:
        report.requests.CopyFrom(_counts(canary.others))
        report.canary_requests.CopyFrom(_counts(canary.tried))
    for (client_id, software, host, principal), kind in sorted(kinds.items(), key=lambda each: each[0])[:MAX_CLIENTS]:
        client = report.clients.add(
            client_id=client_id, software=software, host=host, principal=principal, connections=kind.connections
        )
        for told, names, most in (
            (client.topics, kind.topics, TOPICS_REMEMBERED),
            (client.groups, kind.groups, GROUPS_REMEMBERED),
            (client.transactional_ids, kind.transactional_ids, IDS_REMEMBERED),
        ):
            told.extend(sorted(names)[: min(most, room)])
            room -= len(told)
    return report


def _counts(ends: Ends) -> admin.RequestCounts:
    return admin.RequestCounts(answered=ends.answered, failed=ends.failed)


def _software(session: Session) -> str:
    return f"{session.software_name}/{session.software_version}" if session.software_name else ""
