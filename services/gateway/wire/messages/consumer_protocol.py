"""The bytes of classic consumers: subscriptions inside JoinGroup, assignments inside SyncGroup.

They begin with their version as int16. Kafka promises that newer versions only add at the end, so a version above ours
is read as our newest, and the bytes that follow are ignored.
"""

from dataclasses import dataclass

from services.gateway.wire.codec import decode_prefix
from services.gateway.wire.primitives import Buffer, read_int16
from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    data,
    int32,
    int32s,
    message,
    spec_of,
    string,
    topic_name,
    topic_names,
)


@dataclass(slots=True)
class TopicPartition(Struct):
    topic: str = topic_name()
    partitions: list[int] = int32s()


@message(kind=Kind.DATA, versions=(0, 3), flexible=None)
@dataclass(slots=True)
class ConsumerProtocolSubscription(Struct):
    topics: list[str] = topic_names()
    user_data: Buffer | None = data(nullable_since=0, default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


@message(kind=Kind.DATA, versions=(0, 3), flexible=None)
@dataclass(slots=True)
class ConsumerProtocolAssignment(Struct):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: Buffer | None = data(nullable_since=0, default=None)


def subscription_of(metadata: Buffer) -> ConsumerProtocolSubscription:
    """The subscription in the metadata of a JoinGroup protocol. Raises `WireError` where it is something else."""
    version, position = read_int16(metadata, 0, len(metadata), "ConsumerProtocolSubscription.version")
    newest = spec_of(ConsumerProtocolSubscription).versions[1]
    return decode_prefix(ConsumerProtocolSubscription, min(version, newest), metadata, position)[0]
