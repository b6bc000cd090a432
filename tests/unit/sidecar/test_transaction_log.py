"""The topic of kept answers, right after it was made."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from services.sidecar.producing import transaction_log
from services.sidecar.producing.transaction_log import TransactionLog


class _End:
    """What a consumer gives at the end of a partition."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)


class LateConsumer:
    """Of a broker that hears of the topic later than the one that made it."""

    refusals: list[int]

    def __init__(self, properties: dict[str, Any]) -> None: ...

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.refusals:
            raise KafkaException(KafkaError(self.refusals.pop()))
        return [TopicPartition(one.topic, one.partition, 0) for one in asked]

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    def poll(self, timeout: float) -> _End:
        return _End()

    def close(self) -> None: ...


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> TransactionLog:
    monkeypatch.setattr(transaction_log, "Consumer", LateConsumer)
    monkeypatch.setattr(transaction_log, "VISIBLE_POLL_SECONDS", 0)
    return TransactionLog("t.idempotency", {}, keep_ms=1_000)


def test_a_topic_that_was_just_made_is_waited_for(log: TransactionLog) -> None:
    LateConsumer.refusals = [KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert log.news(30) == []
    assert LateConsumer.refusals == []


@pytest.mark.parametrize(
    ("code", "timeout"), [(KafkaError._UNKNOWN_PARTITION, 0), (KafkaError.TOPIC_AUTHORIZATION_FAILED, 30)]
)
def test_not_for_ever_and_nothing_else_is_waited_for(log: TransactionLog, code: int, timeout: float) -> None:
    LateConsumer.refusals = [code]
    with pytest.raises(KafkaException):
        log.news(timeout)
