"""Committed offsets of consumer groups, asked by librdkafka's admin client in a way that this client survives.

librdkafka ends the process if a broker answers the client's OffsetFetch with NOT_COORDINATOR (`rd_kafka_cgrp_op`,
librdkafka issue 5040). A new cluster answers so, and a broker whose coordinators move. DescribeGroups gets the same
answer and is harmless, so it goes first. A coordinator that moves between both requests can still do harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

COORDINATOR_MOVES = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
"""Errors of a group whose coordinator moves, or still reads `__consumer_offsets`: for seconds after a broker's start
and after a change of leader. librdkafka leaves the retry to its caller."""

GRACE_S = 1.0
"""librdkafka reports a time-out by itself, a moment after the request's time is over."""


def committed_offsets(
    admin: AdminClient, wanted: Sequence[ConsumerGroupTopicPartitions], timeout_s: float, *, stable: bool = False
) -> dict[str, Future[Any]]:
    """By group: the future of its offsets, which may fail with one of `COORDINATOR_MOVES`.

    `stable`: a partition with a pending transaction has the error UNSTABLE_OFFSET_COMMIT. `timeout_s` bounds each of
    two requests.
    """
    if not wanted:
        return {}
    described = admin.describe_consumer_groups([each.group_id for each in wanted], request_timeout=timeout_s)
    return {
        each.group_id: _not_known_now(described[each.group_id], timeout_s)
        or admin.list_consumer_group_offsets([each], require_stable=stable, request_timeout=timeout_s)[each.group_id]
        for each in wanted
    }


def _not_known_now(described: Future[Any], timeout_s: float) -> Future[Any] | None:
    """A failed future if the group's coordinator can't be asked now."""
    try:
        described.result(timeout_s + GRACE_S)
    except KafkaException as error:
        return described if error.args[0].code() in COORDINATOR_MOVES else None
    except TimeoutError:
        late: Future[Any] = Future()
        late.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return late
    return None
