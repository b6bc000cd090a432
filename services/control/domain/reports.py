"""The last reports of members of the mesh: instances that sidecars hold, and the progress of replays.

Reports are no decisions: routing does not depend on them, and they are not in the log. Orders about instances and
replays are in the log.

The log of earlier releases has the same payloads as events. Control folds these events in the same way. The migration
that took the payloads out of the projections left the tables as those events had made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mesh.rpc import events, reports
from services.control.domain.replays.course import merged
from services.control.domain.sidecars.instances import Instances

Progress = Mapping[str, events.ReplayProgressed]
"""replays/{replay} -> all reported partitions of an open replay."""
Payload = events.ConsumerInstanceRegistered | events.ConsumerInstanceRemoved | events.ReplayProgressed


@dataclass(frozen=True, slots=True)
class Reported:
    """The last reports of all members, up to the report `sequence`."""

    sequence: int = 0
    instances: Instances = field(default_factory=dict)
    progress: Progress = field(default_factory=dict)

    def after(self, report: reports.Report) -> Reported:
        """The state after one more report; known reports change nothing."""
        if report.sequence <= self.sequence:
            return self
        known = replace(self, sequence=report.sequence)
        if report.HasField("replay_progressed"):
            return replace(known, progress=_progressed(self.progress, report.replay_progressed))
        return replace(known, instances=fold_instances(self.instances, report))


def fold_instances(known: Instances, said: reports.Report | events.Event) -> Instances:
    """The instances after a report, or after an event of an earlier release."""
    match said.WhichOneof("payload"):
        case "consumer_instance_registered":
            instance = said.consumer_instance_registered.instance
            return {**known, instance.name: instance}
        case "consumer_instance_removed":
            left = dict(known)  # copying costs a tenth of picking the other instances one by one
            left.pop(said.consumer_instance_removed.name, None)
            return left
        case _:
            return known


def _progressed(known: Progress, said: events.ReplayProgressed) -> Progress:
    before = known.get(said.name, events.ReplayProgressed())
    partitions = merged(before.partitions, said.partitions)
    return {**known, said.name: events.ReplayProgressed(name=said.name, partitions=partitions, totals=said.totals)}
