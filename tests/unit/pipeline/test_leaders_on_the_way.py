"""Offsets asked of a cluster that has made a partition just now, or whose leaders change."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from services.pipeline.kafka.admin import Questions
from services.pipeline.kafka.positions import UnreachableError

NOT_YET = KafkaError.NOT_LEADER_FOR_PARTITION


class Cluster:
    """What librdkafka's client answers about offsets: for partition 1 the scripted errors first."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked: list[list[int]] = []

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        self.asked.append([each.partition for each in asked])
        answers: dict[TopicPartition, Future[Any]] = {each: Future() for each in asked}
        for each, future in answers.items():
            if each.partition == 1 and self.errors:
                future.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            else:
                future.set_result(SimpleNamespace(offset=10 * each.partition, timestamp=7))
        return answers

    def poll(self, _: float) -> int:
        return 0


def questions(cluster: Cluster, timeout_s: float = 10.0) -> Questions:
    made = Questions({"bootstrap.servers": "nobody.invalid:1"}, timeout_s)
    made.admin = cast(AdminClient, cluster)
    return made


@pytest.mark.parametrize("code", [NOT_YET, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_partition_whose_leader_is_on_the_way_is_asked_again_and_no_other(code: int) -> None:
    cluster = Cluster(code, code)

    assert questions(cluster).ends([("apples", 0), ("apples", 1)]) == {("apples", 0): 0, ("apples", 1): 10}
    assert cluster.asked == [[0, 1], [1], [1]]


def test_so_is_one_whose_last_record_is_asked_for() -> None:
    assert questions(Cluster(NOT_YET)).last([("apples", 1)])["apples", 1].offset == 10


def test_brokers_that_cannot_say_what_is_last_are_asked_once() -> None:
    cluster = Cluster(KafkaError.UNSUPPORTED_VERSION)

    assert questions(cluster).last([("apples", 1)]) == {}
    assert cluster.asked == [[1]]


def test_a_leader_that_does_not_come_in_time_is_told() -> None:
    with pytest.raises(UnreachableError, match="apples/1"):
        questions(Cluster(*[NOT_YET] * 20), timeout_s=0.3).ends([("apples", 1)])
