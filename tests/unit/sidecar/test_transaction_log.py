"""The topic of kept answers, right after it was made, and when its broker stalls."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from services.sidecar.producing import transaction_log
from services.sidecar.producing.idempotency import KeptAnswer
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
    log.read(lambda key, answer: pytest.fail(f"{key}: {answer}"), 30)
    assert LateConsumer.refusals == []


@pytest.mark.parametrize(
    ("code", "timeout"), [(KafkaError._UNKNOWN_PARTITION, 0), (KafkaError.TOPIC_AUTHORIZATION_FAILED, 30)]
)
def test_not_for_ever_and_nothing_else_is_waited_for(log: TransactionLog, code: int, timeout: float) -> None:
    LateConsumer.refusals = [code]
    with pytest.raises(KafkaException):
        log.read(lambda key, answer: None, timeout)


class RefusingCluster:
    """Has the topic, and lets nobody see or change its settings."""

    def __init__(self, properties: dict[str, Any]) -> None: ...

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        return {resources[0]: refused}


def test_where_kafka_refuses_the_settings_of_the_topic_the_log_says_what_to_set(
    log: TransactionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_log, "AdminClient", RefusingCluster)
    with capture_logs() as told:
        log.make(30)
    [warning] = told
    assert (warning["log_level"], warning["topic"], warning["segment_ms"]) == ("warning", "t.idempotency", "83")
    assert "set segment.ms of the topic" in warning["event"]


class StallingConsumer(LateConsumer):
    """Of a broker with four answers that stalls once, half-way."""

    stalled = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._next = partitions[0].offset

    def poll(self, timeout: float) -> Any:
        if self._next == 2 and not StallingConsumer.stalled:
            StallingConsumer.stalled = True
            return None
        if self._next == 4:
            return _End()
        self._next += 1
        return _Answer(self._next - 1)


class _Answer:
    """One message of the topic."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return f"key-{self._offset}".encode()

    def value(self) -> bytes:
        return KeptAnswer("digest", b"{}", 1).encoded()


def test_a_broker_that_stalls_half_way_loses_no_answer(log: TransactionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "Consumer", StallingConsumer)
    LateConsumer.refusals = []
    known: list[str] = []
    with pytest.raises(KafkaException, match="could not be read to its end"):
        log.read(lambda key, answer: known.append(key), 30)
    log.read(lambda key, answer: known.append(key), 30)
    assert known == ["key-0", "key-1", "key-2", "key-3"]
