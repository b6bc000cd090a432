"""Turns places in partitions (ends and times) into offsets."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from services.sidecar.consuming.positions import AtOffset, AtTime, Edge, Position, Seek
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.records import Partition

ASK_SECONDS = 5.0
"""Bound of a question for offsets."""


def positions_of(seeks: Iterable[Seek], consumer: Consumer) -> list[Position]:
    """The offset of each. Kafka is asked where a place is no offset: once for all, and again for times past the end."""
    found: dict[Partition, int] = {}
    asked: list[TopicPartition] = []
    for seek in seeks:
        match seek.to:
            case AtOffset(offset):
                found[seek.partition] = offset
            case AtTime(ms):
                asked.append(TopicPartition(seek.partition.topic, seek.partition.partition, ms))
            case edge:
                asked.append(TopicPartition(seek.partition.topic, seek.partition.partition, edge.value))
    for answered in _ask(asked, consumer):
        found[Partition(answered.topic, answered.partition)] = answered.offset
    ends = [TopicPartition(one.topic, one.partition, Edge.LAST.value) for one, at in found.items() if at < 0]
    for answered in _ask(ends, consumer):
        found[Partition(answered.topic, answered.partition)] = answered.offset
    return [Position(partition, offset) for partition, offset in found.items()]


def within_ends(positions: Iterable[Position], consumer: Consumer) -> list[Position]:
    """The positions, each at most at the end of its partition.

    From a position beyond the end, Kafka's client would begin again at the first record.
    """
    wanted = list(positions)
    ends = ends_of([one.partition for one in wanted], consumer, ASK_SECONDS)
    return [Position(one.partition, min(one.offset, ends.get(one.partition, one.offset))) for one in wanted]


def ends_of(partitions: Iterable[Partition], consumer: Consumer, timeout: float) -> dict[Partition, int]:
    """The end offset of each partition; partitions without an answer of Kafka in time are left out."""
    try:
        answers: list[TopicPartition] = consumer.offsets_for_times(
            [TopicPartition(one.topic, one.partition, Edge.LAST.value) for one in partitions], timeout=timeout
        )
    except KafkaException:
        return {}
    return {Partition(one.topic, one.partition): one.offset for one in answers if one.error is None and one.offset >= 0}


def _ask(asked: list[TopicPartition], consumer: Consumer) -> list[TopicPartition]:
    if not asked:
        return []
    try:
        answers: list[TopicPartition] = consumer.offsets_for_times(asked, timeout=ASK_SECONDS)
    except KafkaException as error:
        raise Fault(
            FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, f"Kafka does not say where to seek: {error.args[0].str()}"
        ) from None
    for one in answers:
        if one.error is not None:
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION,
                f"Kafka does not say where to seek in {one.topic}-{one.partition}: {one.error.str()}",
            )
    return answers
