"""Who runs: routers and gateways from the routers' reports, sidecars from their beats. In memory; it heals with the
next report.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import Gauge

from mesh.rpc import admin
from services.control.domain.rollouts import Answer, Phase

EXPIRY = 15.0
"""Seconds without a word after which a member counts as gone; reports come every few seconds."""
MAX_SIDECARS = 10_000

PHASES = {
    admin.MEMBER_PHASE_APPLIED: Phase.APPLIED,
    admin.MEMBER_PHASE_HELD: Phase.HELD,
    admin.MEMBER_PHASE_REFUSED: Phase.REFUSED,
}

members_gauge = Gauge("control_members", "Members that control hears of.", ["kind"])


@dataclass(slots=True)
class _Router:
    """One open report stream."""

    member: admin.Member
    data_planes: dict[str, admin.Member] = field(default_factory=dict)
    heard: float = 0.0


class Members:
    """The registry of members."""

    def __init__(self) -> None:
        self._routers: dict[object, _Router] = {}
        self._sidecars: dict[str, tuple[admin.Member, float]] = {}
        self._changed = asyncio.Event()
        self.ever_reported = False
        """Whether any router has reported since this process started."""

    def report(self, stream: object, router: admin.Member, members: Iterable[admin.Member]) -> None:
        """What a router says about itself and its data planes: complete, so it replaces what it said before."""
        now = time.monotonic()
        me = _seen(router, admin.MEMBER_KIND_ROUTER)
        planes = {}
        for each in members:
            member = _seen(each, each.kind or admin.MEMBER_KIND_GATEWAY)
            member.router = member.router or router.name.removeprefix("members/")
            planes[member.name] = member
        self._routers[stream] = _Router(me, planes, now)
        self.ever_reported = True
        self._tell()

    def left(self, stream: object) -> None:
        """A router's stream has ended: what hangs on it is not known any more."""
        if self._routers.pop(stream, None) is not None:
            self._tell()

    def beat(self, sidecar: admin.Member) -> bool:
        """A sidecar lives; False when there are more of them than can be."""
        member = _seen(sidecar, admin.MEMBER_KIND_SIDECAR)
        if member.name not in self._sidecars and len(self._sidecars) >= MAX_SIDECARS:
            return False
        self._sidecars[member.name] = (member, time.monotonic())
        self._tell()
        return True

    def all(self) -> list[admin.Member]:
        """Every member, by kind and name."""
        self._expire()
        found: dict[str, admin.Member] = {}
        for router in self._fresh_last():
            found[router.member.name] = router.member
            found.update(router.data_planes)
        found.update({name: member for name, (member, _) in self._sidecars.items()})
        return sorted(found.values(), key=lambda member: (member.kind, member.name))

    def gateways(self) -> dict[str, Answer]:
        """Connected gateways with what they answered last."""
        return {
            member.name.removeprefix("members/"): Answer(
                member.revision, PHASES.get(member.phase, Phase.UNKNOWN), member.phase_reason
            )
            for member in self.all()
            if member.kind == admin.MEMBER_KIND_GATEWAY
        }

    async def changed(self) -> None:
        """Returns at the next change."""
        await self._changed.wait()

    def _fresh_last(self) -> list[_Router]:
        return sorted(self._routers.values(), key=lambda router: router.heard)

    def _expire(self) -> None:
        oldest = time.monotonic() - EXPIRY
        self._routers = {stream: router for stream, router in self._routers.items() if router.heard >= oldest}
        self._sidecars = {name: beat for name, beat in self._sidecars.items() if beat[1] >= oldest}

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        members_gauge.labels("router").set(len(self._routers))
        members_gauge.labels("sidecar").set(len(self._sidecars))
        members_gauge.labels("gateway").set(sum(len(router.data_planes) for router in self._routers.values()))


def _seen(member: admin.Member, kind: admin.MemberKind.ValueType) -> admin.Member:
    seen = admin.Member()
    seen.CopyFrom(member)
    seen.name = member.name if member.name.startswith("members/") else f"members/{member.name}"
    seen.kind = kind
    seen.last_seen_time.GetCurrentTime()
    return seen
