"""Puts reports of gateways about logs under standby together: the highest end of each partition counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.rpc import acknowledgements

MOST_LOGS = 5_000
"""The topics of all standbys."""


class ReportedLogs:
    """How far any gateway reported each log, by topic: also what gateways said that are gone. No message changes."""

    def __init__(self) -> None:
        self._logs: dict[str, acknowledgements.AcknowledgedLog] = {}

    def known(self) -> Mapping[str, acknowledgements.AcknowledgedLog]:
        """By topic, as of now."""
        return dict(self._logs)

    def get(self, topic: str) -> acknowledgements.AcknowledgedLog | None:
        return self._logs.get(topic)

    def add(self, logs: Iterable[acknowledgements.AcknowledgedLog]) -> None:
        """Somebody has reported these logs."""
        for each in logs:
            self._logs[each.topic] = merged(self._logs.pop(each.topic, None), each)
        while len(self._logs) > MOST_LOGS:
            del self._logs[next(iter(self._logs))]


def merged(
    known: acknowledgements.AcknowledgedLog | None, said: acknowledgements.AcknowledgedLog
) -> acknowledgements.AcknowledgedLog:
    """The log after one more report; what was said of an earlier copy of the topic is void. Changes no message."""
    if known is None or known.since_revision < said.since_revision:
        return said
    if known.since_revision > said.since_revision:
        return known
    after = acknowledgements.AcknowledgedLog(topic=known.topic, since_revision=known.since_revision)
    partitions = {each.partition: each for each in known.partitions}
    for each in said.partitions:
        before = partitions.get(each.partition)
        partitions[each.partition] = each if before is None else _higher(before, each)
    after.partitions.extend(partitions[number] for number in sorted(partitions))
    return after


def _higher(
    one: acknowledgements.AcknowledgedPartition, other: acknowledgements.AcknowledgedPartition
) -> acknowledgements.AcknowledgedPartition:
    return acknowledgements.AcknowledgedPartition(
        partition=one.partition,
        end=max(one.end, other.end),
        transactional=one.transactional or other.transactional,
    )
