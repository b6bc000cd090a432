"""The process that counts for each sidecar, and the last reported state of its instances.

The state is in memory; it heals with the next heartbeat. Pipelines are here too, by their resource names, because they
follow orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client import Gauge

from mesh.rpc import events, instances, subscriptions
from services.control.decisions.members.members import EXPIRY, MAX_SIDECARS
from services.control.domain.errors import Conflict, Unavailable
from services.control.domain.sidecars.commands import PIPELINES, named
from services.control.domain.sidecars.incarnations import EARLIER_RELEASE, Incarnation
from services.control.domain.sidecars.instances import Instances
from services.control.steady_clock import Clock, steady_clock

LONGEST_PROBLEM = 1000
MAX_PARTITIONS = 500_000
"""The most partitions of all instances together for which control keeps positions; about 100 MB."""
MAX_SUBSCRIPTIONS = 300
"""The most subscriptions of one sidecar that control shows: a sidecar has 100 of each source."""

partitions_gauge = Gauge("kafka_mesh_control_instance_partitions", "Partitions of instances whose positions are kept.")

BEATS_A_SECOND = 400
"""Beats that control wants of all sidecars together."""
SHORTEST_BEAT_MS, LONGEST_BEAT_MS = 3_000, 7_000
"""The bounds of the time to the next beat: EXPIRY is a little more than two of the longest."""


@dataclass(slots=True)
class _Sidecar:
    """The state of one sidecar."""

    incarnation: Incarnation
    heard: datetime
    statuses: dict[str, instances.InstanceStatus] = field(default_factory=dict)
    partitions: int = 0
    reported: list[subscriptions.SubscriptionReport] = field(default_factory=list)
    """Its report about each of its subscriptions."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last report about an instance."""

    status: instances.InstanceStatus
    time: datetime


class Sidecars:
    """The last report of each sidecar."""

    def __init__(self, known: Callable[[], Instances], clock: Clock = steady_clock) -> None:
        """`known`: registered instances; control drops reports about other instances."""
        self.on_other_process: Callable[[str], None] = lambda _sidecar: None
        """Called when another process of a sidecar than before counts."""
        self._known = known
        self._clock = clock
        self._sidecars: dict[str, _Sidecar] = {}
        self._partitions = 0

    def hear(self, sidecar: str, incarnation: Incarnation) -> bool:
        """Takes a message of a process; False when a younger process of the same sidecar is connected."""
        now, last = self._clock(), self._sidecars.get(sidecar)
        if last is None:
            self._make_room()
            self._sidecars[sidecar] = _Sidecar(incarnation, now)
            return True
        if incarnation is not EARLIER_RELEASE:
            if incarnation < last.incarnation and now - last.heard <= EXPIRY:
                return False
            is_other, last.incarnation = incarnation != last.incarnation, incarnation
            if is_other:
                self.on_other_process(sidecar)
        last.heard = now
        return True

    def require_current(self, sidecar: str, incarnation: Incarnation) -> None:
        """Refuses a process that has to give way."""
        last = self._sidecars.get(sidecar)
        if last is not None and incarnation < last.incarnation:
            raise Conflict(
                "SUPERSEDED",
                f"a younger process of {named(sidecar)} is there ({last.incarnation.text}); "
                "this one shall close its instances and serve none",
            )

    def report(self, sidecar: str, said: Iterable[instances.InstanceStatus]) -> None:
        """Takes the state of all instances of a sidecar of which control has just heard."""
        entry, known = self._sidecars[sidecar], self._known()
        self._partitions -= entry.partitions
        entry.statuses, entry.partitions = {}, 0
        for each in said:
            instance = known.get(each.name)
            if instance is not None and instance.sidecar == sidecar:
                kept = entry.statuses[each.name] = instances.InstanceStatus()
                kept.CopyFrom(each)
                kept.problem = each.problem[:LONGEST_PROBLEM]
                if self._partitions + entry.partitions + len(kept.partitions) > MAX_PARTITIONS:
                    del kept.partitions[:]
                entry.partitions += len(kept.partitions)
        self._partitions += entry.partitions
        partitions_gauge.set(self._partitions)

    def report_subscriptions(self, sidecar: str, said: Sequence[subscriptions.SubscriptionReport]) -> None:
        """Takes what a sidecar of which control has just heard says of its subscriptions."""
        kept: list[subscriptions.SubscriptionReport] = []
        for each in said[:MAX_SUBSCRIPTIONS]:
            report = subscriptions.SubscriptionReport()
            report.CopyFrom(each)
            report.problem, report.sidecar = each.problem[:LONGEST_PROBLEM], sidecar
            kept.append(report)
        self._sidecars[sidecar].reported = kept

    def names(self) -> list[str]:
        """The living sidecars."""
        return [name for name in self._sidecars if not name.startswith(PIPELINES) and self.is_alive(name)]

    def subscription_reports(self, sidecar: str = "") -> tuple[list[subscriptions.SubscriptionReport], list[str]]:
        """The reports of living sidecars, or of one, about their subscriptions; and the sidecars without a report."""
        alive = sorted(name for name in self.names() if sidecar in ("", name))
        reports = [each for name in alive for each in self._sidecars[name].reported]
        return reports, [name for name in alive if not self._sidecars[name].reported]

    def status_of(self, instance: events.ConsumerInstance) -> Heard | None:
        """The last report about the instance; None when its sidecar has reported nothing about it yet."""
        entry = self._sidecars.get(instance.sidecar)
        status = None if entry is None else entry.statuses.get(instance.name)
        if entry is None or status is None:
            return None
        if self.is_alive(instance.sidecar):
            return Heard(status, entry.heard)
        shown = instances.InstanceStatus()
        shown.CopyFrom(status)
        shown.state = instances.INSTANCE_STATE_UNREACHABLE
        shown.problem = f"sidecar {instance.sidecar!r} has not been heard of since {entry.heard:%H:%M:%S} UTC"
        return Heard(shown, entry.heard)

    @property
    def next_beat_ms(self) -> int:
        """When the sidecar that beats now shall beat again. All sidecars count that control remembers."""
        return max(SHORTEST_BEAT_MS, min(len(self._sidecars) * 1000 // BEATS_A_SECOND, LONGEST_BEAT_MS))

    def is_alive(self, sidecar: str) -> bool:
        entry = self._sidecars.get(sidecar)
        return entry is not None and self._silence(entry) <= EXPIRY

    def known(self) -> set[str]:
        """Sidecars that control hears of, and sidecars that hold instances; no pipelines."""
        return {name for name in self.listeners() if not name.startswith(PIPELINES)}

    def listeners(self) -> set[str]:
        """The sidecars of `known`, and pipelines."""
        alive = {name for name, entry in self._sidecars.items() if self._silence(entry) <= EXPIRY}
        return alive | {instance.sidecar for instance in self._known().values()}

    def _silence(self, entry: _Sidecar) -> timedelta:
        return self._clock() - entry.heard

    def _make_room(self) -> None:
        """Makes room for one more sidecar: removes the sidecar that has been silent for longest, if it is gone."""
        if len(self._sidecars) < MAX_SIDECARS:
            return
        name, entry = min(self._sidecars.items(), key=lambda each: each[1].heard)
        if self._silence(entry) <= EXPIRY:
            raise Unavailable("TOO_MANY_MEMBERS", f"control shows at most {MAX_SIDECARS} sidecars")
        self._partitions -= entry.partitions
        del self._sidecars[name]
