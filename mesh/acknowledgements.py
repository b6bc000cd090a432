"""Puts reports of gateways about one log under standby together: the highest end of each partition counts."""

from __future__ import annotations

from mesh.rpc import acknowledgements


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
