"""The reports of a committed round, to metrics and to audit."""

from __future__ import annotations

from collections.abc import Sequence

from services.sidecar.auditing import events
from services.sidecar.auditing.events import AuditType
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.records import Delivered
from services.sidecar.streams.rounds import OpenTask, Outcomes, RoundEntries
from services.sidecar.telemetry import metrics


def count(topology: str, tasks: Sequence[OpenTask], outcomes: Outcomes, entries: RoundEntries) -> None:
    """Counts records by outcome."""
    metrics.stream_rounds.labels(topology, "committed").inc()
    counted = {
        "read": len(outcomes.processed),
        "dead_letter": len(outcomes.refused),
        "skipped": outcomes.skipped,
        "written": sum(len(entries.entries[place].records) for place in entries.outputs),
    }
    for one in tasks:
        for reason, number in one.task.drops.items():
            counted[reason] = counted.get(reason, 0) + number
    for outcome, number in counted.items():
        if number:
            metrics.stream_records.labels(topology, outcome).inc(number)


def audit(trail: AuditTrail, outcomes: Outcomes, entries: RoundEntries, written: Sequence[Sequence[Delivered]]) -> None:
    """Audits each record that was read, and each record that was written."""
    if trail.wants(AuditType.STREAMING_CONSUMER):
        refused = {(one.record.topic, one.record.partition, one.record.offset) for one in outcomes.refused}
        trail.record(
            [
                events.audit_record(
                    AuditType.STREAMING_CONSUMER, one.topic, one.partition, one.offset,
                    key=one.key, ids=events.ids_in(one.headers),
                )
                for one in outcomes.processed
                if (one.topic, one.partition, one.offset) not in refused
            ]
        )  # fmt: skip
        trail.record(events.settled(outcomes.refused, AuditType.STREAMING_CONSUMER))
    if trail.wants(AuditType.STREAMING_PRODUCER):
        for place in entries.outputs:
            entry = entries.entries[place]
            trail.record(events.produced(entry.topic, entry.records, written[place], AuditType.STREAMING_PRODUCER))
