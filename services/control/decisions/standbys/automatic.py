"""Fail-overs without an operator: the quorum of gateways, control's own question to the cluster, and the bounds.

Theory of operation
1. Gateways report each second for how long they have not reached a cluster that has a standby. Control looks once more
   than half of those that report have not reached it for the time of the order.
2. Control then asks the cluster itself. If it answers, nothing happens.
3. If the copies lack more than the order allows, control waits, with a warning and a metric. It checks again each
   second. Gateways may reach the cluster again, routers may copy the rest, or an operator decides.
4. The decision is an event of the leading control that rests on the standby as it is: it is made once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from prometheus_client import Gauge

from mesh import durations
from mesh.rpc import standbys
from services.control.decisions.standbys.failing_over import FailOvers
from services.control.decisions.standbys.reports import StandbyReports
from services.control.domain.standbys.policies import is_away, obstacle

log = structlog.get_logger(__name__)
waits_gauge = Gauge(
    "kafka_mesh_control_standby_fail_over_waits",
    "1 while the cluster is away and control does not fail over by itself, because the copies lack too much.",
    ["cluster"],
)


class AutomaticFailOvers:
    """See above."""

    def __init__(
        self,
        reports: StandbyReports,
        fail_overs: FailOvers,
        answers: Callable[[str], Awaitable[bool]],
        begin: Callable[[standbys.Standby, str], Awaitable[None]],
    ) -> None:
        """`answers`: whether a cluster answers control; `begin`: begins a fail-over, with its reason."""
        self._reports = reports
        self._fail_overs = fail_overs
        self._answers = answers
        self._begin = begin
        self._lags: dict[tuple[str, str], float] = {}
        """Standby and topic -> the lag of the copy when it was last known."""
        self._waits: dict[str, str] = {}

    def why_waiting(self, name: str) -> str:
        """Why control does not fail over, although the cluster is away; empty if it is not away."""
        return self._waits.get(name, "")

    async def look(self, shown: standbys.Standby) -> None:
        """Decides about one standby, as it is shown now."""
        spec, name = shown.spec, shown.name
        copied = [each for each in shown.topics if not each.left]
        for each in copied:
            if each.HasField("lag"):
                self._lags[name, each.topic] = durations.in_s(each.lag)
        if not spec.HasField("fail_over_after") or not copied:
            return
        why = ""
        seconds, after = self._reports.without(spec.source_cluster), durations.in_s(spec.fail_over_after)
        if is_away(seconds, after) and not await self._answers(spec.source_cluster):
            lost = self._fail_overs.counted(copied)
            why = obstacle(spec, lost, {topic: lag for (standby, topic), lag in self._lags.items() if standby == name})
            if not why:
                votes = sum(each >= after for each in seconds.values())
                reason = f"{votes} of {len(seconds)} gateways have not reached it for {after:g} s, nor has control"
                log.warning("control fails over by itself", standby=name, reason=reason)
                self.forget(name)
                await self._begin(shown, reason)
        if why and why != self._waits.get(name):
            log.warning("a cluster is away, and control does not fail over by itself", standby=name, reason=why)
        self._waits[name] = why
        waits_gauge.labels(spec.source_cluster).set(bool(why))

    def forget(self, name: str) -> None:
        """The standby does not follow its cluster any more."""
        if self._waits.pop(name, None):
            waits_gauge.labels(name.rpartition("/")[2]).set(0)
        self._lags = {key: lag for key, lag in self._lags.items() if key[0] != name}
