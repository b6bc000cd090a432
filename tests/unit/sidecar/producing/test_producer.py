"""The producer where no Kafka answers: outcomes come all the same."""

import asyncio
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import REGISTRY

from services.sidecar.producing.client import ProducerClient
from services.sidecar.producing.delivery import failed
from services.sidecar.producing.producer import ProducerLimits, RecordProducer
from services.sidecar.records import DeliveryError, Failed, Outgoing

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 60_000}
ROUND_TRIP_MS = 40
RECORD = Outgoing(key=None, value=b"v", partition=None, timestamp=0, headers=[])


def producer() -> RecordProducer:
    return RecordProducer(NOWHERE, ProducerLimits(1000, 1_000_000, 1.0, unknown_topic_seconds=0.1))


async def until_queued(records: int) -> None:
    async with asyncio.timeout(60):
        while REGISTRY.get_sample_value("kafka_mesh_sidecar_queued_records") != records:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.SASL_AUTHENTICATION_FAILED, DeliveryError.AUTHENTICATION),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, DeliveryError.AUTHORIZATION),
        (KafkaError._UNKNOWN_TOPIC, DeliveryError.UNKNOWN_TOPIC),
        (KafkaError._UNKNOWN_PARTITION, DeliveryError.UNKNOWN_PARTITION),
        (KafkaError._MSG_TIMED_OUT, DeliveryError.RETRIABLE),
        (KafkaError.MSG_SIZE_TOO_LARGE, DeliveryError.KAFKA),
    ],
)
def test_errors_of_kafka_have_the_numbers_of_the_contract(code: int, expected: DeliveryError) -> None:
    assert failed(KafkaError(code)).error is expected


async def test_what_is_on_the_way_when_the_time_is_over_fails_as_retriable() -> None:
    sender = producer()
    sending = asyncio.create_task(sender.send("apples", [RECORD] * 3))
    await until_queued(3)
    await sender.stop(0.1)
    assert [outcome.error for outcome in await sending if isinstance(outcome, Failed)] == [DeliveryError.RETRIABLE] * 3
    assert not sender.is_alive


async def test_records_that_wait_for_a_slow_broker_take_no_processor() -> None:
    """The client's own thread looked for them without a rest, for as long as others were on the way."""
    slow = {"bootstrap.servers": "", "test.mock.num.brokers": 1, "test.mock.broker.rtt": ROUND_TRIP_MS}
    sender = RecordProducer(
        {**slow, "enable.idempotence": True, "linger.ms": 1},
        ProducerLimits(10_000, 10_000_000, 10.0, unknown_topic_seconds=10.0),
    )
    await sender.send("apples", [RECORD])  # it knows the topic now
    used = time.process_time()
    sent = []
    for _ in range(200):
        sent.append(asyncio.create_task(sender.send("apples", [RECORD] * 20)))
        await asyncio.sleep(ROUND_TRIP_MS / 4000)  # so that some come while others are on the way
    await asyncio.gather(*sent)
    used = time.process_time() - used
    await sender.stop(5)
    assert used < 0.8, "for two seconds there was hardly anything to do; a client without a rest takes them all"


async def test_a_stopping_producer_takes_nothing_more() -> None:
    sender = producer()
    await sender.stop(0.1)
    (outcome,) = await sender.send("apples", [RECORD])
    assert outcome == Failed(DeliveryError.RETRIABLE, "the sidecar is stopping; send again later")


async def test_after_a_fatal_error_a_new_client_takes_over() -> None:
    sender = producer()
    sending = asyncio.create_task(sender.send("apples", [RECORD]))
    await until_queued(1)
    sender._client._on_error(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
    (outcome,) = await sending
    assert isinstance(outcome, Failed)
    assert outcome.error is DeliveryError.RETRIABLE
    again = asyncio.create_task(sender.send("apples", [RECORD]))
    await until_queued(1)
    assert sender.is_alive
    await sender.stop(0.1)
    await again


@pytest.mark.parametrize("inside_a_callback", [False, True])
async def test_a_fatal_error_that_breaks_out_of_a_poll_is_not_missed(inside_a_callback: bool) -> None:
    """So does the client with fatal errors, whatever call serves events just then."""
    told: list[str] = []
    client = ProducerClient(NOWHERE, lambda: told.append("fatal"))
    fatal = KafkaException(KafkaError(KafkaError._FATAL, "fenced", fatal=True))

    def poll(timeout: float) -> None:
        if inside_a_callback:
            raise SystemError("returned a result with an exception set") from fatal
        raise fatal

    client._serve(poll, 0)
    assert told == ["fatal"]
    client.end(0)
    assert client.join(10)


@pytest.mark.parametrize("name", ["", "bad topic", "a/b", "..", "x" * 250])
async def test_illegal_topic_names_are_told_without_asking_kafka(name: str) -> None:
    sender = producer()
    assert await sender.send(name, [RECORD]) == [Failed(DeliveryError.UNKNOWN_TOPIC, f"Invalid topics: [{name}]")]
    await sender.stop(0.1)
