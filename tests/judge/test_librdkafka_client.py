"""A fatal error of librdkafka's producer ends an operation, never the judge's run."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from judge.clients.librdkafka import LibrdkafkaProducer
from judge.history import Guarantee, Outcome, Place

FATAL = KafkaException(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
AT = Place("apples", 0)


def of_itself() -> None:
    raise FATAL


def beside_a_report() -> None:
    """As confluent-kafka raises the error when a delivery report was served in the same call."""
    raise SystemError("returned a result with an exception set") from FATAL


class Broken:
    """A producer that hears of a fatal error in its next flush."""

    def __init__(self, fails: Callable[[], None]) -> None:
        self._fails = fails

    def begin_transaction(self) -> None: ...

    def produce(self, *_: object, **__: object) -> None: ...

    def flush(self, _: float) -> None:
        self._fails()


@pytest.mark.parametrize("fails", [of_itself, beside_a_report])
@pytest.mark.parametrize("guarantee", [Guarantee.IDEMPOTENT, Guarantee.TRANSACTIONAL])
def test_an_operation_that_meets_a_fatal_error_has_an_outcome(fails: Callable[[], None], guarantee: Guarantee) -> None:
    producer = LibrdkafkaProducer("127.0.0.1:1", guarantee, "", "none", "test")
    producer._producer = Broken(fails)  # type: ignore[assignment]
    if guarantee is Guarantee.TRANSACTIONAL:
        sent = producer.transaction([(AT, 1)], commit=True, between=lambda: None)
        assert sent.outcome is Outcome.FAIL
    else:
        assert producer.send(AT, [1]).outcome is Outcome.INFO
    assert producer._producer is None, "the next operation gets a new producer"
