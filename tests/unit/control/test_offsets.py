"""Committed offsets asked of a cluster, with the answers a broker gives while its coordinator is on the way."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from services.control.domain.log_ranges import LogRange
from services.control.upstream.offsets import log_ranges, positions


class Cluster:
    """What librdkafka's client answers for one group: the scripted errors first, then what is committed."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked = 0

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        errors = [KafkaException(KafkaError(self.errors.pop(0)))] if self.errors else []
        return answered(SimpleNamespace(valid=[SimpleNamespace(group_id="readers")], errors=errors))

    def describe_consumer_groups(self, groups: list[str], request_timeout: float) -> dict[str, Future[Any]]:
        """Only the errors of a coordinator: others come with the offsets."""
        future = answered(None)
        if self.errors and self.errors[0] in ON_THE_WAY:
            future = Future()
            future.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        return dict.fromkeys(groups, future)

    def list_consumer_group_offsets(
        self, asked: list[ConsumerGroupTopicPartitions], require_stable: bool, request_timeout: float
    ) -> dict[str, Future[Any]]:
        self.asked += 1
        group = asked[0].group_id
        if self.errors:
            failed: Future[Any] = Future()
            failed.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            return {group: failed}
        return {group: answered(SimpleNamespace(topic_partitions=[TopicPartition("apples", 0, 7)]))}

    def list_offsets(self, asked: dict[TopicPartition, object], request_timeout: float) -> dict[TopicPartition, Any]:
        """One partition at a time answers with an error."""
        self.asked += 1
        answers = {each: answered(SimpleNamespace(offset=10 * each.partition)) for each in asked}
        if self.errors:
            failed: Future[Any] = Future()
            failed.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            answers[list(asked)[-1]] = failed
        return answers


def answered(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


ON_THE_WAY = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)


@pytest.mark.parametrize("groups", [None, ["readers"]], ids=["all groups", "a named one"])
def test_a_coordinator_that_still_loads_is_asked_again(groups: list[str] | None) -> None:
    cluster = Cluster(*ON_THE_WAY)

    found = positions(cast(AdminClient, cluster), ["apples"], groups, bound=10)

    assert found == {"apples": {"readers": {0: 7}}}


def test_a_group_deleted_meanwhile_has_no_offsets() -> None:
    assert positions(cast(AdminClient, Cluster(KafkaError.GROUP_ID_NOT_FOUND)), ["apples"], ["readers"], 10) == {
        "apples": {}
    }


@pytest.mark.parametrize("groups", [None, ["readers"]], ids=["all groups", "a named one"])
@pytest.mark.parametrize(
    ("errors", "bound"),
    [([KafkaError.GROUP_AUTHORIZATION_FAILED], 10.0), ([KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 10, 0.3)],
    ids=["what asking again does not change", "a coordinator that does not come within the bound"],
)
def test_other_failures_are_told(groups: list[str] | None, errors: list[int], bound: float) -> None:
    with pytest.raises((KafkaException, TimeoutError)):
        positions(cast(AdminClient, Cluster(*errors)), ["apples"], groups, bound)


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_partition_whose_leader_is_on_the_way_is_asked_again(code: int) -> None:
    cluster = Cluster(code, code)

    found = log_ranges(cast(AdminClient, cluster), {"apples": 2}, bound=10)

    assert found == {"apples": {0: LogRange(0, 0), 1: LogRange(10, 10)}}
    assert cluster.asked == 4


@pytest.mark.parametrize(
    ("errors", "bound"),
    [([KafkaError.TOPIC_AUTHORIZATION_FAILED], 10.0), ([KafkaError.NOT_LEADER_FOR_PARTITION] * 10, 0.3)],
    ids=["what asking again does not change", "a leader that does not come within the bound"],
)
def test_ends_that_cannot_be_had_are_told(errors: list[int], bound: float) -> None:
    with pytest.raises(KafkaException):
        log_ranges(cast(AdminClient, Cluster(*errors)), {"apples": 1}, bound)
