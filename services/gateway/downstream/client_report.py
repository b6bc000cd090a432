"""The report to control: the clients of this gateway, what they use, and what they do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mesh.rpc import admin, clients, discovery
from services.gateway.downstream.answers import Answers
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.tables import Ends, RunningCanary
from services.gateway.requests.client_calls import Rates
from services.gateway.requests.memory import Session
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.uses import GROUPS_REMEMBERED, IDS_REMEMBERED, TOPICS_REMEMBERED, shortened
from services.gateway.wire.apis import api_name
from services.gateway.wire.errors import error_name

MAX_CLIENTS = 1000
MAX_NAMES = 20_000
"""Most names of topics, groups and transactional ids in one report. Names of the last clients are left out."""
MAX_CODES = 20
"""Most error codes of one API of a client."""

CLIENTS_EVERY_S = 3.0
CANARY_EVERY_S = 1.0
"""The interval of reports while a table is tried: the outcomes of requests decide whether the canary goes on."""
FIGURES_EVERY_S = 9.0
"""The interval of rates and counts, which change all the time, where clients are few ..."""
FIGURES_FOR_EACH_S = 0.05
"""... and at least so much for each kind of client: a kind takes some 500 bytes, so a gateway sends 10 KB a second."""


async def report_clients(connections: Iterable[ClientConnection], mesh: Mesh, answers: Answers) -> None:
    """Reports the clients and the listeners while they change, until cancelled."""
    tables = mesh.tables
    reported: discovery.ClientReport | None = None
    measure_at = 0.0
    while True:
        now = time.monotonic()
        if now >= measure_at:
            for connection in list(connections):
                connection.session.calls.measure(time.time())
        report = client_report((connection.session for connection in connections), tables.canary)
        if mesh.listeners is not None:
            report.listeners.extend(mesh.listeners.report())
        report.rehearsals.extend(mesh.rehearsing.report())
        if now >= measure_at:
            measure_at = now + max(FIGURES_EVERY_S, FIGURES_FOR_EACH_S * len(report.clients))
        if report != reported:
            answers.add(discovery.WatchRequest(clients=report))
            reported = report
        await asyncio.sleep(CLIENTS_EVERY_S if tables.canary is None else CANARY_EVERY_S)


Who = tuple[str, str, str, str, str]
"""The kind of a connection: operators need not tell connections of one kind apart."""


@dataclass(slots=True)
class _Kind:
    """Connections of one kind."""

    connections: int = 0
    since: float = float("inf")
    last: float = 0.0
    rates: Rates = field(default_factory=Rates)
    answered: Counter[tuple[int, int]] = field(default_factory=Counter)
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    produced: set[str] = field(default_factory=set)
    consumed: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    transactional_ids: set[str] = field(default_factory=set)

    def add(self, session: Session) -> None:
        uses, calls = session.uses, session.calls
        self.connections += 1
        self.since, self.last = min(self.since, calls.since), max(self.last, calls.last)
        self.rates.add(calls.rates)
        self.answered.update(calls.measured)
        self.errors.update(calls.measured_errors)
        self.produced.update(uses.produced)
        self.consumed.update(uses.consumed)
        self.groups.update(uses.groups)
        self.transactional_ids.update(uses.transactional_ids)


def client_report(sessions: Iterable[Session], canary: RunningCanary | None = None) -> discovery.ClientReport:
    """Equal for equal clients, in whatever order they came. While a table is tried it says how requests end.

    Counts and rates are those of the last look (`ClientCalls.measure`).
    """
    kinds: dict[Who, _Kind] = {}
    total = 0
    for session in sessions:
        name = shortened(session.client_id or "")
        who = (name, _software(session), session.address, session.principal, session.listener)
        kinds.setdefault(who, _Kind()).add(session)
        total += 1
    room = MAX_NAMES
    report = discovery.ClientReport(total=total, kinds=len(kinds))
    if canary is not None:
        report.requests.CopyFrom(_counts(canary.others))
        report.canary_requests.CopyFrom(_counts(canary.tried))
    youngest = sorted(kinds.items(), key=lambda each: (-each[1].last, each[0]))[:MAX_CLIENTS]
    for (client_id, software, host, principal, listener), kind in sorted(youngest, key=lambda each: each[0]):
        client = report.clients.add(
            client_id=client_id,
            software=software,
            host=host,
            principal=principal,
            listener=listener,
            connections=kind.connections,
            rates=clients.ClientRates(
                requests=kind.rates.requests, bytes_in=kind.rates.bytes_in, bytes_out=kind.rates.bytes_out
            ),
            apis=_apis(kind),
        )
        client.since_time.FromMilliseconds(round(1000 * kind.since))
        client.last_time.FromMilliseconds(round(1000 * kind.last))
        for told, names, most in (
            (client.topics, _latest(kind.produced, kind.consumed), 2 * TOPICS_REMEMBERED),
            (client.groups, kind.groups, GROUPS_REMEMBERED),
            (client.transactional_ids, kind.transactional_ids, IDS_REMEMBERED),
        ):
            told.extend(sorted(names)[: min(most, room)])
            room -= len(told)
        client.produced.extend(place for place, topic in enumerate(client.topics) if topic in kind.produced)
        client.consumed.extend(place for place, topic in enumerate(client.topics) if topic in kind.consumed)
    return report


def _latest(*names: set[str]) -> set[str]:
    """At most so many of each kind as the gateway remembers of one connection."""
    return {name for each in names for name in sorted(each)[:TOPICS_REMEMBERED]}


def _apis(kind: _Kind) -> list[clients.ClientApi]:
    """By name. The table of APIs knows the versions that a release of Kafka removed."""
    used: dict[int, clients.ClientApi] = {}
    for (key, version), requests in sorted(kind.answered.items()):
        api = used.get(key)
        if api is None:
            handler = HANDLERS.get(key)
            removed_in = "" if handler is None else handler.removed_in(version)
            api = clients.ClientApi(api=api_name(key), lowest_version=version, removed_in=removed_in)
            used[key] = api
        api.highest_version = version
        api.requests += requests
    for (key, code), answers in kind.errors.most_common():
        api = used.get(key)
        if api is not None and len(api.errors) < MAX_CODES:
            api.errors.add(error=error_name(code), answers=answers)
    return sorted(used.values(), key=lambda each: each.api)


def _counts(ends: Ends) -> admin.RequestCounts:
    return admin.RequestCounts(answered=ends.answered, failed=ends.failed)


def _software(session: Session) -> str:
    return f"{session.software_name}/{session.software_version}" if session.software_name else ""
