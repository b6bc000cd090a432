"""Committed offsets asked of a cluster, with the answers a broker gives while its coordinator is on the way."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from services.control.upstream.offsets import positions


class Cluster:
    """What librdkafka's client answers for one group: the scripted errors first, then what is committed."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked = 0

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        errors = [KafkaException(KafkaError(self.errors.pop(0)))] if self.errors else []
        return answered(SimpleNamespace(valid=[SimpleNamespace(group_id="readers")], errors=errors))

    def list_consumer_group_offsets(
        self, asked: list[ConsumerGroupTopicPartitions], request_timeout: float
    ) -> dict[str, Future[Any]]:
        self.asked += 1
        group = asked[0].group_id
        if self.errors:
            failed: Future[Any] = Future()
            failed.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            return {group: failed}
        return {group: answered(SimpleNamespace(topic_partitions=[TopicPartition("apples", 0, 7)]))}


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
