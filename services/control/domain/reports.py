"""What members of the mesh have reported last: instances that sidecars hold, and how far replays are. Reports are no
decisions: nothing about routing follows from them, and they are not in the log. Orders about them are.

The log of earlier releases has the same payloads as events. They are folded just so: the migration that took them out
of the projections left the tables as those events had made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mesh.rpc import events, reports
from services.control.domain.instances import Instances
from services.control.domain.replay_course import merged

Progress = Mapping[str, events.ReplayProgressed]
"""All partitions of each open replay that has reported some, by replays/{replay}."""
Payload = events.ConsumerInstanceRegistered | events.ConsumerInstanceRemoved | events.ReplayProgressed


@dataclass(frozen=True, slots=True)
class Reported:
    """The last word of all members, after the report `sequence`."""

    sequence: int = 0
    instances: Instances = field(default_factory=dict)
    progress: Progress = field(default_factory=dict)

    def after(self, report: reports.Report) -> Reported:
        """What is known after one more report; reports that are known change nothing."""
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
            left = dict(known)  # a copy costs a tenth of picking the others one by one
            left.pop(said.consumer_instance_removed.name, None)
            return left
        case _:
            return known


def _progressed(known: Progress, said: events.ReplayProgressed) -> Progress:
    before = known.get(said.name, events.ReplayProgressed())
    partitions = merged(before.partitions, said.partitions)
    return {**known, said.name: events.ReplayProgressed(name=said.name, partitions=partitions, totals=said.totals)}
