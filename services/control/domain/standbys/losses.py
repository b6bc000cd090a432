"""The records that a fail-over loses, by partition: what gateways have acknowledged, and the copy does not have."""

from __future__ import annotations

from mesh.rpc import acknowledgements, standbys


def counted(
    topic: standbys.StandbyTopic, log: acknowledgements.AcknowledgedLog | None, *, someone_is_silent: bool
) -> standbys.StandbyTopic:
    """The topic with its lost records. `log`: what gateways have acknowledged; None if they acknowledged nothing.

    A record that no gateway has acknowledged is not lost: its producer sends it again. The end that a router saw counts
    where no gateway has acknowledged anything since then, or may have and did not say it.
    """
    said = {} if log is None else {each.partition: each for each in log.partitions}
    after = standbys.StandbyTopic()
    after.CopyFrom(topic)
    for each in after.partitions:
        known = said.get(each.partition)
        if known is None:
            each.acknowledged_end = each.end
        else:
            each.acknowledged_end = max(known.end, each.end if someone_is_silent else 0)
        each.lost_records = max(0, each.acknowledged_end - each.position)
        each.loss_count = _COUNTS[known is not None and known.transactional, someone_is_silent]
    after.lag_records = sum(each.lost_records for each in after.partitions)
    return after


_COUNTS = {
    (False, False): standbys.LOSS_COUNT_EXACT,
    (False, True): standbys.LOSS_COUNT_AT_LEAST,
    (True, False): standbys.LOSS_COUNT_AT_MOST,
    (True, True): standbys.LOSS_COUNT_ABOUT,
}
"""By whether transactions wrote there, and whether a gateway is silent."""
