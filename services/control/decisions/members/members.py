"""The members that run: routers and gateways from the routers' reports, sidecars from their heartbeats.

Gateways that are away
1. A gateway that stops in order says goodbye to its router when it serves no client any more. The router passes the
   goodbye on, and control forgets the gateway. The gateway serves no client again before a router has sent a table.
2. Any other gateway that no router reports is *away*. Its process may have died, its link may be cut, or its router may
   be gone. Control can't distinguish these: a reset connection may come from the kernel of a dead process, or from a
   proxy between two living processes. A living gateway serves its clients on, under the table that it has. So an away
   gateway counts as a member that does not answer. A change that moves topics does not begin, and names the gateway.
3. Time alone makes no gateway gone: only an operator can know that its process is dead. A change that names the gateway
   (`without_members`) goes on without it, and so do later changes (`pass_over`). Should the gateway live after all, it
   is the one member that writes to old clusters. So each change names the gateway in its answer. The status shows the
   gateway as left behind, until a router hears from it again, or for `KEPT`. As soon as the gateway reaches a router,
   it gets the table in force.
4. A router that stood still may pass on the goodbye of an earlier process of a gateway. So a goodbye ends only the
   process that it names, and the process that control heard of last is the present one. Older gateways name no
   process: for these the times decide.
5. This state must outlive control: the register (`store/register.py`) keeps it, and the next leader recalls it.
   Everything else here heals with the next report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from prometheus_client import Gauge

from mesh.quotas.codec import shares_to_proto, uses_from_proto
from mesh.quotas.policy import Sharers
from mesh.quotas.shares import Use, shares
from mesh.rpc import admin, discovery, quotas
from services.control.domain.members.canaries import Counts, Trying
from services.control.domain.members.clients import use_of
from services.control.domain.members.rollouts import Answer, Phase
from services.control.domain.members.usage import ClientUse, Unlisted
from services.control.steady_clock import Clock, steady_clock

EXPIRY = timedelta(seconds=15)
"""A router or a sidecar that is silent for so long counts as gone; reports come every few seconds."""
KEPT = timedelta(days=1)
"""How long the status shows a gateway that an operator left out."""
MAX_AWAY = 1000
"""The most gateways that the status shows as away: those that control heard of last."""
MAX_SIDECARS = 10_000
MAX_PROCESSES = 10_000
"""The most processes of gateways whose order control remembers: those that it heard of last."""

PHASES = {
    admin.MEMBER_PHASE_APPLIED: Phase.APPLIED,
    admin.MEMBER_PHASE_HELD: Phase.HELD,
    admin.MEMBER_PHASE_TRYING: Phase.TRYING,
    admin.MEMBER_PHASE_REFUSED: Phase.REFUSED,
}

members_gauge = Gauge("kafka_mesh_control_members", "Members that control hears of.", ["kind"])
RESERVED_S = 60.0
"""For so long the part of a quota stays reserved for a gateway that no router hears."""
away_gauge = Gauge("kafka_mesh_control_gateways_away", "Gateways that no router hears, and that did not stop in order.")


@dataclass(slots=True)
class _Router:
    """One open report stream of a router."""

    member: admin.Member
    data_planes: dict[str, admin.Member]
    heard: datetime


@dataclass(frozen=True, slots=True)
class _Goodbye:
    process: str
    """Empty if the gateway named none."""
    at: datetime

    def ends(self, member: admin.Member) -> bool:
        """Whether no process runs any more that was seen as `member`."""
        if self.process and member.process:
            return self.process == member.process
        return _time(member) <= self.at


@dataclass(slots=True)
class Members:
    """The registry of members."""

    clock: Clock = steady_clock
    ever_reported: bool = False
    """Whether any router has reported since this process started."""
    _clients: dict[str, discovery.ClientReport] = field(default_factory=dict)
    """The reports of connected gateways, by name."""
    _routers: dict[object, _Router] = field(default_factory=dict)
    _sidecars: dict[str, admin.Member] = field(default_factory=dict)
    """By the time of their last beats, the oldest first: so a beat of one costs the same, however many there are."""
    _gateways: dict[str, admin.Member] = field(default_factory=dict)
    """All gateways that have not said goodbye, as in their last report."""
    _goodbyes: dict[str, _Goodbye] = field(default_factory=dict)
    """The last goodbye of each gateway. A goodbye that names no process counts until a router hears of the gateway."""
    _processes: dict[str, int] = field(default_factory=dict)
    """The processes of gateways, numbered in the order in which control first heard of them."""
    _quota_uses: dict[str, dict[Sharers, Use]] = field(default_factory=dict)
    """The parts of quotas that clients of gateways use, by the last report of each gateway."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def report(
        self,
        stream: object,
        router: admin.Member,
        members: Iterable[admin.Member],
        departed: Mapping[str, int] | None = None,
        clients: Mapping[str, discovery.ClientReport] | None = None,
        processes: Mapping[str, str] | None = None,
    ) -> None:
        """Takes a router's report about itself and its data planes; it is complete, so it replaces the earlier report.

        `departed`: gateways that said goodbye to the router, and how many milliseconds ago; `processes`: the process of
        each that named its process.
        """
        me = self._seen(router, admin.MEMBER_KIND_ROUTER)
        planes = {}
        for each in members:
            member = self._seen(each, each.kind or admin.MEMBER_KIND_GATEWAY)
            member.router = member.router or short(router.name)
            planes[member.name] = member
            if member.kind == admin.MEMBER_KIND_GATEWAY:
                self._heard(member)
        self._routers[stream] = _Router(me, planes, self.clock())
        self._clients |= {short(name): report for name, report in (clients or {}).items()}
        self.ever_reported = True
        self._say_goodbye(departed or {}, processes or {})
        self._tell()

    def report_quota_uses(self, reports: Mapping[str, quotas.QuotaParts]) -> None:
        """Takes the parts of quotas that the clients of gateways use."""
        self._quota_uses |= {name: uses_from_proto(each) for name, each in reports.items()}

    def quota_shares(self, stream: object) -> dict[str, quotas.QuotaParts]:
        """The parts of quotas of each gateway of a router.

        A gateway that is away goes on with its last part, so this part stays reserved for a while.
        """
        now, connected = self.clock(), self._connected()
        away = (each.name for each in self._away() if (now - _time(each)).total_seconds() < RESERVED_S)
        gateways = {name for name, each in connected.items() if each.kind == admin.MEMBER_KIND_GATEWAY}.union(away)
        self._quota_uses = {name: each for name, each in self._quota_uses.items() if name in gateways}
        divided = shares(self._quota_uses, frozenset(gateways))
        router = self._routers.get(stream)
        return {
            name: shares_to_proto(len(gateways), divided[name])
            for name in (() if router is None else router.data_planes)
            if name in divided
        }

    def left(self, stream: object) -> None:
        """A router's stream has ended: control does not hear of its data planes any more."""
        if self._routers.pop(stream, None) is not None:
            self._tell()

    def beat(self, sidecar: admin.Member) -> bool:
        """Takes a heartbeat of a sidecar; False when there are too many sidecars."""
        member = self._seen(sidecar, admin.MEMBER_KIND_SIDECAR)
        self._expire_sidecars()
        if self._sidecars.pop(member.name, None) is None and len(self._sidecars) >= MAX_SIDECARS:
            return False
        self._sidecars[member.name] = member
        members_gauge.labels("sidecar").set(len(self._sidecars))
        return True

    def recall(self, register: Mapping[str, tuple[admin.Member, bool]]) -> None:
        """Takes the gateways that another process had heard of; gateways that this process has heard of itself stay.

        Gateways that were connected then count as heard of now: nobody has recorded how long they were connected.
        """
        for name, (member, connected) in register.items():
            goodbye = self._goodbyes.get(name)
            if name in self._gateways or (goodbye is not None and goodbye.ends(member)):
                continue
            self._gateways[name] = self._seen(member, member.kind) if connected else member
            self._number(member)
        self._tell()

    def all(self) -> list[admin.Member]:
        """Every member, by kind and name; also the members that are away."""
        self._expire()
        found = {member.name: _left_behind(member) for member in self._away()} | self._connected()
        found |= {router.member.name: router.member for router in self._routers.values()}
        found |= self._sidecars
        return sorted(found.values(), key=lambda member: (member.kind, member.name))

    def gateways(self) -> dict[str, Answer]:
        """Connected gateways with their last answers."""
        self._expire()
        return {
            short(member.name): Answer(member.revision, PHASES.get(member.phase, Phase.UNKNOWN), member.phase_reason)
            for member in self._connected().values()
            if member.kind == admin.MEMBER_KIND_GATEWAY
        }

    def trying(self) -> dict[str, Trying]:
        """Connected gateways with their reports about the running canary."""
        connected = self._connected()
        return {
            name: Trying(
                answer,
                _counts(connected[f"members/{name}"].canary_requests),
                _counts(connected[f"members/{name}"].requests),
            )
            for name, answer in self.gateways().items()
        }

    def away(self) -> dict[str, float]:
        """Gateways that may still serve clients, and that no router hears: gateway -> seconds of silence."""
        self._expire()
        now = self.clock()
        return {short(member.name): (now - _time(member)).total_seconds() for member in self._away()}

    def awaited(self) -> dict[str, float]:
        """The gateways of `away`, without those that an operator has left out."""
        return {name: s for name, s in self.away().items() if not self._gateways[f"members/{name}"].passed_over}

    def pass_over(self, names: Iterable[str]) -> None:
        """Goes on without these gateways. Those that are away stop no later change, until a router hears from them."""
        away = self.away()
        for name in away.keys() & {*names}:
            self._gateways[f"members/{name}"].passed_over = True
        self._tell()

    def revision_of(self, name: str) -> int | None:
        """The last known revision of the table that a gateway runs or holds; None when nobody knows the gateway."""
        member = self._gateways.get(f"members/{name}")
        return None if member is None else member.revision

    def known(self) -> frozenset[str]:
        """Gateways that have not said goodbye."""
        return frozenset(short(name) for name in self._gateways)

    def register(self) -> dict[str, tuple[admin.Member, bool]]:
        """All gateways that have not said goodbye, each with whether it is connected, for the next leader."""
        self._expire()
        connected = self._connected()
        return {name: (member, name in connected) for name, member in self._gateways.items()}

    def uses(self) -> list[ClientUse]:
        """The clients of the connected gateways, and the names that they use."""
        return [use_of(name, client) for name, report in self.client_reports().items() for client in report.clients]

    def client_reports(self) -> Mapping[str, discovery.ClientReport]:
        """The last reports of the connected gateways about their clients, by gateway."""
        connected = {short(name) for name in self._connected()}
        self._clients = {name: report for name, report in self._clients.items() if name in connected}
        return self._clients

    def unlisted(self) -> list[Unlisted]:
        """The connected gateways that do not list all of their clients."""
        found = [
            Unlisted(
                name, len(report.clients), report.kinds, report.total - sum(each.connections for each in report.clients)
            )
            for name, report in sorted(self.client_reports().items())
        ]
        return [each for each in found if each.connections > 0]

    def routers_below(self, table_format: int) -> dict[str, str]:
        """Connected routers that support only older formats of tables than this, each with its version."""
        self._expire()
        routers = (router.member for router in self._routers.values())
        return {short(each.name): each.version for each in routers if each.table_format < table_format}

    async def changed_within(self, seconds: float) -> bool:
        """Returns True at the next change; False when there is none within `seconds`."""
        if seconds <= 0:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _heard(self, member: admin.Member) -> None:
        """A router reports this gateway as connected."""
        goodbye, known = self._goodbyes.get(member.name), self._gateways.get(member.name)
        if goodbye is not None and not (goodbye.process and member.process):
            del self._goodbyes[member.name]
        elif goodbye is not None and goodbye.ends(member):
            return
        self._number(member)
        if known is None or not self._is_older(member, known):
            self._gateways[member.name] = member

    def _number(self, member: admin.Member) -> None:
        if member.process and member.process not in self._processes:
            self._processes[member.process] = 1 + next(reversed(self._processes.values()), 0)
            while len(self._processes) > MAX_PROCESSES:
                del self._processes[next(iter(self._processes))]

    def _is_older(self, one: admin.Member, other: admin.Member) -> bool:
        """Whether control heard of the first one's process before it heard of the other's."""
        first, second = (self._processes.get(member.process) for member in (one, other))
        return first is not None and second is not None and first < second

    def _connected(self) -> dict[str, admin.Member]:
        """Connected data planes. The report about the present process of a data plane counts.

        If a data plane changed its router, the report of the router heard last counts.
        """
        found: dict[str, admin.Member] = {}
        for router in sorted(self._routers.values(), key=lambda router: router.heard):
            for name, member in router.data_planes.items():
                goodbye, earlier = self._goodbyes.get(name), found.get(name)
                is_gone = goodbye is not None and bool(goodbye.process) and goodbye.process == member.process
                if not is_gone and (earlier is None or not self._is_older(member, earlier)):
                    found[name] = member
        return found

    def _away(self) -> list[admin.Member]:
        connected = self._connected()
        return [member for name, member in self._gateways.items() if name not in connected]

    def _say_goodbye(self, departed: Mapping[str, int], processes: Mapping[str, str]) -> None:
        """Forgets departed gateways, without those that run on as another process, or have connected again since."""
        now = self.clock()
        for name, milliseconds in departed.items():
            goodbye = _Goodbye(processes.get(name, ""), now - timedelta(milliseconds=milliseconds))
            if goodbye.process:
                self._goodbyes[name] = goodbye
            member, present = self._gateways.get(name), self._connected().get(name)
            if member is None or not goodbye.ends(member):
                continue
            if present is None:
                del self._gateways[name]
                self._goodbyes[name] = goodbye
            else:
                self._gateways[name] = present
        while len(self._goodbyes) > MAX_AWAY:
            del self._goodbyes[next(iter(self._goodbyes))]

    def _expire(self) -> None:
        now = self.clock()
        self._routers = {stream: each for stream, each in self._routers.items() if now - each.heard <= EXPIRY}
        self._expire_sidecars()
        away = sorted(self._away(), key=_time, reverse=True)
        for member in away:
            if member.passed_over and now - _time(member) > KEPT:
                del self._gateways[member.name]
        for member in away[MAX_AWAY:]:
            self._gateways.pop(member.name, None)

    def _expire_sidecars(self) -> None:
        now = self.clock()
        while self._sidecars and now - _time(next(iter(self._sidecars.values()))) > EXPIRY:
            del self._sidecars[next(iter(self._sidecars))]

    def _seen(self, member: admin.Member, kind: admin.MemberKind.ValueType) -> admin.Member:
        seen = admin.Member()
        seen.CopyFrom(member)
        seen.name = f"members/{short(member.name)}"
        seen.kind = kind
        seen.passed_over = False
        seen.last_seen_time.FromDatetime(self.clock())
        return seen

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        members_gauge.labels("router").set(len(self._routers))
        members_gauge.labels("sidecar").set(len(self._sidecars))
        members_gauge.labels("gateway").set(sum(len(router.data_planes) for router in self._routers.values()))
        away_gauge.set(len(self._away()))


def short(name: str) -> str:
    """The {member} part of `members/{member}`."""
    return name.removeprefix("members/")


def _counts(counts: admin.RequestCounts) -> Counts:
    return Counts(counts.answered, counts.failed)


def _time(member: admin.Member) -> datetime:
    return member.last_seen_time.ToDatetime(UTC)


def _left_behind(member: admin.Member) -> admin.Member:
    shown = admin.Member()
    shown.CopyFrom(member)
    shown.left_behind = True
    shown.phase_reason = f"no router has heard of it since {_time(member):%H:%M:%S} UTC, and it said no goodbye"
    return shown
