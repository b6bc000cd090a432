"""The reports of gateways about clusters that have standbys. In memory: routers repeat them to a new control."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mesh import durations
from mesh.acknowledgements import ReportedLogs
from mesh.rpc import acknowledgements, admin
from services.control.decisions.members.members import short

FRESH_S = 15.0
"""Routers report at least every 5 seconds. An older report says nothing of now."""


@dataclass(frozen=True, slots=True)
class _Heard:
    at: float
    seconds: Mapping[str, float]
    """Cluster -> for how long the gateway has not reached it."""


@dataclass(slots=True)
class StandbyReports:
    """See above."""

    clock: Callable[[], float] = time.monotonic
    _logs: ReportedLogs = field(default_factory=ReportedLogs)
    _heard: dict[str, _Heard] = field(default_factory=dict)

    def report(
        self,
        members: Iterable[admin.Member],
        logs: Iterable[acknowledgements.AcknowledgedLog],
        reports: Mapping[str, acknowledgements.StandbyReport],
    ) -> None:
        """Takes a router's report. Members without an entry in `reports` reach all clusters."""
        self._logs.add(logs)
        now = self.clock()
        self._heard = {name: each for name, each in self._heard.items() if now - each.at <= FRESH_S}
        for member in members:
            if member.kind in (admin.MEMBER_KIND_GATEWAY, admin.MEMBER_KIND_UNSPECIFIED):
                unreachable = reports[member.name].unreachable if member.name in reports else ()
                seconds = {each.cluster_name: durations.in_s(each.duration) for each in unreachable}
                self._heard[short(member.name)] = _Heard(now, seconds)

    def log_of(self, topic: str, since: int) -> acknowledgements.AcknowledgedLog | None:
        """How far gateways have acknowledged the topic since its copy began; None if they have acknowledged nothing."""
        log = self._logs.get(topic)
        return log if log is not None and log.since_revision == since else None

    def without(self, cluster: str) -> dict[str, float]:
        """The reporting gateways, each with the seconds for which it has not reached the cluster; 0: it reaches it."""
        now = self.clock()
        return {name: each.seconds.get(cluster, 0.0) for name, each in self._heard.items() if now - each.at <= FRESH_S}
