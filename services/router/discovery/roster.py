"""All data planes that are connected to this router: passes news to each, and collects their phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import grpc

from mesh import durations
from mesh.acknowledgements import ReportedLogs
from mesh.routing.policies import QUOTA_POLICY
from mesh.rpc import acknowledgements, admin, discovery, quotas
from services.router import metrics
from services.router.agents.bulletin import Bulletin, Notice
from services.router.change import Change
from services.router.discovery.member import Answer, Message, News
from services.router.discovery.orders import PHASES
from services.router.discovery.session import Ending, Session

DEPARTURES_KEPT_S = 120.0
"""Seconds for which the router reports a goodbye to control: enough for a restart of control."""
MAX_DEPARTURES = 1000
"""More than the gateways of one mesh that stop within that time. If more stop, the last ones are reported."""


@dataclass(slots=True)
class HoldBound:
    """How long data planes may hold, in milliseconds. Control sets this value; until then, the settings do."""

    milliseconds: int


class _Departure(NamedTuple):
    process: str
    at: float


class Roster:
    """Sessions by member name; a second stream of the same member replaces the first."""

    def __init__(self, router: str, bulletin: Bulletin, clock: Callable[[], float], hold: HoldBound) -> None:
        self.change = Change()
        self._router = router
        self._bulletin = bulletin
        self._clock = clock
        self._hold = hold
        self._sessions: dict[str, Session] = {}
        self._departures: dict[str, _Departure] = {}
        self.acknowledged = ReportedLogs()
        self._quota_parts: dict[str, quotas.QuotaParts] = {}
        """The parts of quotas of each gateway, as control last divided them."""
        bulletin.on_notice(self._spread)
        for answer in (*Answer, None):
            phase = metrics.members.labels(answer.value if answer else "none")
            phase.set_function(partial(self._number_with, answer))  # counted when somebody asks

    def enter(self, identity: admin.Member) -> Session:
        """A stream began."""
        latest = self._bulletin.latest
        session = Session(identity, None if latest is None else self._news(latest))
        replaced = self._sessions.get(identity.name)
        if replaced is not None:
            reason = f"{identity.name} opened another watch, which replaces this one"
            replaced.end(Ending(grpc.StatusCode.ABORTED, "replaced", reason))
        self._sessions[identity.name] = session
        self._departures.pop(identity.name, None)
        self._divide_to(session)
        self.change.note()
        return session

    def leave(self, session: Session) -> None:
        """Its stream is over."""
        session.drop_outbox()
        if self._sessions.get(session.identity.name) is session:
            del self._sessions[session.identity.name]
            self.change.note()

    def depart(self, session: Session) -> None:
        """It stops in order and serves nobody any more: no change has to wait for it."""
        session.end(Ending(grpc.StatusCode.OK, "left", "it said goodbye"))
        if self._sessions.get(session.identity.name) is session:
            self._departures[session.identity.name] = _Departure(session.identity.process, self._clock())
            while len(self._departures) > MAX_DEPARTURES:
                del self._departures[next(iter(self._departures))]
        self.leave(session)

    def heard(self, session: Session, message: Message) -> None:
        """The member said something."""
        session.tell(message)
        self.change.note()

    def heard_clients(self, session: Session, report: discovery.ClientReport) -> None:
        """The member reported its clients."""
        session.clients = report
        self.change.note()

    def heard_quota_parts(self, session: Session, parts: quotas.QuotaParts) -> None:
        """The member reported the parts of quotas that its clients use."""
        session.quota_parts = parts
        self.change.note()

    def heard_standby(self, session: Session, report: acknowledgements.StandbyReport) -> None:
        """The member reported what it knows of clusters that have standbys."""
        self.acknowledged.add(report.logs)
        del report.logs[:]
        session.standby = report
        self.change.note()

    def standby_reports(self) -> dict[str, acknowledgements.StandbyReport]:
        """The clusters with a standby that members can't reach, by member, for control."""
        return {name: each.standby for name, each in self._sessions.items() if each.standby.unreachable}

    def quota_parts(self) -> dict[str, quotas.QuotaParts]:
        """The parts of quotas that clients use, by member, for control."""
        return {name: each.quota_parts for name, each in self._sessions.items() if each.quota_parts is not None}

    def divide(self, parts: Mapping[str, quotas.QuotaParts]) -> None:
        """Control has divided quotas; members of older releases hear nothing of it."""
        self._quota_parts = dict(parts)
        for session in self._sessions.values():
            self._divide_to(session)

    def _divide_to(self, session: Session) -> None:
        parts = self._quota_parts.get(session.identity.name)
        if parts is not None and session.identity.table_format >= QUOTA_POLICY.table_format:
            session.divide(parts)

    def end_all(self, ending: Ending) -> None:
        """The router stops."""
        for session in self._sessions.values():
            session.end(ending)

    def members(self) -> list[admin.Member]:
        """Everyone as of now, for control."""
        return [self._described(session) for session in self._sessions.values()]

    def clients(self) -> dict[str, discovery.ClientReport]:
        """The clients of each member, by the member's last report."""
        return {name: session.clients for name, session in self._sessions.items()}

    def departed(self) -> dict[str, int]:
        """The members that said goodbye lately, each with the milliseconds since then, for control."""
        now = self._clock()
        kept = {name: each for name, each in self._departures.items() if now - each.at <= DEPARTURES_KEPT_S}
        self._departures = kept
        return {name: round(1000 * (now - each.at)) for name, each in kept.items()}

    def departed_processes(self) -> dict[str, str]:
        """The processes of `departed`, without those of gateways that tell none."""
        return {name: each.process for name, each in self._departures.items() if each.process}

    def _described(self, session: Session) -> admin.Member:
        standing, identity = session.member.standing, session.identity
        return admin.Member(
            name=identity.name,
            kind=identity.kind,
            version=identity.version,
            address=identity.address,
            table_format=identity.table_format,
            process=identity.process,
            revision=standing.revision,
            phase=PHASES[standing.answer] if standing.answer else admin.MEMBER_PHASE_UNSPECIFIED,
            phase_reason=standing.reason,
            router=self._router.removeprefix("members/"),
            client_count=session.clients.total,
            requests=session.clients.requests,
            canary_requests=session.clients.canary_requests,
            lag=durations.of_ms(1000 * (standing.lag_s or 0.0)),
        )

    def _spread(self, notice: Notice) -> None:
        news = self._news(notice)
        for session in self._sessions.values():
            session.tell(news)
        metrics.revision.set(notice.state.effective.revision)
        metrics.pending_revision.set(notice.state.pending.revision if notice.state.pending else 0)
        self.change.note()

    def _news(self, notice: Notice) -> News:
        held_ms = 1000 * (self._clock() - notice.pending_since)
        return News(notice.state, max(0, round(self._hold.milliseconds - held_ms)), notice.decided_at)

    def _number_with(self, answer: Answer | None) -> int:
        return [session.member.standing.answer for session in self._sessions.values()].count(answer)
