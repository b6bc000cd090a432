"""Messages with something in every field, the same at each call, as clients write them and as brokers do.

`sample(cls, version, Side.CLIENT)` and `sample(cls, version, Side.BROKER)` are one message seen from the two sides of
the gateway: a value follows from where it stands, whatever the version is, and only what the mesh calls otherwise
(ids of topics, numbers of brokers) differs. Requests and answers speak of the same topics, groups and brokers.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from mesh.compression import Codec
from mesh.routing import FIRST_CLUSTER_NODE_ID
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.legacy.conversion import Readable, Stored, batches_of, message_sets_of
from services.gateway.wire.legacy.message_sets import write_message
from services.gateway.wire.legacy.record import Record
from services.gateway.wire.messages import UnregisterControllerRequest, describe_quorum, fetch, produce
from services.gateway.wire.schema import FieldSpec, Named, Struct, Type, fields_of, spec_of
from tests.unit.gateway.scripted_broker import BROKER_ID

M = TypeVar("M", bound=Struct)

MESH_ID: Final = "kafka-mesh"
ORDINAL: Final = 1
"""Of the cluster that owns the topics."""
TOPICS: Final = ("apples", "pears")
PARTITIONS: Final = (1, 2)
"""Not 0, which is what a field holds that nobody has written."""
PARTITION_COUNT: Final = 3
GROUPS: Final = ("packers", "pickers")
TRANSACTIONS: Final = ("orders", "payments")
USERS: Final = ("ann", "bob")
FIRST_OFFSET: Final = 5
"""Of all records that brokers give."""
FAILURE: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
"""Neither client nor gateway can do anything about it."""
UNKNOWN_TAG: Final = 1000


class Side(Enum):
    CLIENT = "client"
    BROKER = "broker"


class Mood(Enum):
    """What the answers of brokers say."""

    WILLING = "all goes well"
    MIXED = "the second of several items has failed"
    REFUSING = "everything has failed"
    """Hints where else to go come with failures alone."""


def cluster_topic_id(topic: str) -> bytes:
    """As the scripted broker makes them."""
    return topic.encode().ljust(16)


WORDS: Final[Mapping[str, Sequence[Any]]] = {
    "group_id": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "group_ids": GROUPS,
    "transactional_id": TRANSACTIONS,
    "transactional_ids": TRANSACTIONS,
    "v3_and_below_transactional_id": TRANSACTIONS,
    "producer_id": (1 << 40, 1 << 41),
    "resource_name": TOPICS,
    "resource_name_filter": TOPICS,
    "partition": PARTITIONS,
    "partitions": PARTITIONS,
    "partition_id": PARTITIONS,
    "partition_index": PARTITIONS,
    "partition_indexes": PARTITIONS,
    "index": PARTITIONS,
    "acks": (-1,),
    "isolation_level": (1,),
    "max_wait_ms": (10_000,),
    "min_bytes": (1,),
    "max_bytes": (1 << 20,),
    "partition_max_bytes": (1 << 20,),
    "fetch_offset": (FIRST_OFFSET,),
    "resource_type": (2,),
    "resource_types": (2,),
    "resource_type_filter": (2,),
    "pattern_type": (3,),
    "pattern_type_filter": (3,),
    "resource_pattern_type": (3,),
    "entity_type": ("client-id", "user"),
    "key": ("consumer_byte_rate", "producer_byte_rate"),
    "mechanism": (1, 2),
    "states_filter": ("Empty", "Stable"),
    "types_filter": ("classic", "consumer"),
    "group_state": ("Stable",),
    "group_type": ("consumer",),
    "unknown_state_filters": ("Calm", "Lost"),
    "principal": ("User:ann", "User:bob"),
    "token_id": ("t1", "t2"),
    "operation": (3, 4),
    "permission_type": (3,),
    "user": USERS,
    "feature": ("group.version", "share.version"),
    "session_id": (0,),
    "session_epoch": (-1,),
    "share_session_epoch": (1,),
    "response_partition_limit": (100,),
    "endpoint_type": (1,),
    "key_type": (1,),
    "coordinator_keys": GROUPS,
}
"""By a field's name: what it holds, and in the next element of its list. All others hold what is made of their place.

Errors of whole answers are 0, as those of all first items: who reports one, reports nothing else.
"""

OF_CLASS: Final[Mapping[tuple[str, str], Sequence[Any]]] = {
    ("FindCoordinatorRequest", "key"): GROUPS,
    ("Coordinator", "key"): GROUPS,
    ("UserName", "name"): USERS,
    ("ScramCredentialDeletion", "name"): USERS,
    ("ScramCredentialUpsertion", "name"): USERS,
    ("AlterReplicaLogDir", "path"): ("c1/1:/a", "c1/1:/b"),
    ("AclDescription", "host"): ("*", "10.0.0.1"),
    ("DeleteAclsMatchingAcl", "host"): ("*", "10.0.0.1"),
    ("ApiVersionsRequest", "cluster_id"): (MESH_ID,),
    ("ApiVersionsRequest", "node_id"): (FIRST_CLUSTER_NODE_ID + ORDINAL,),
    ("SaslHandshakeRequest", "mechanism"): ("PLAIN",),
    ("PushTelemetryRequest", "metrics"): (b"",),
    ("PushTelemetryRequest", "compression_type"): (Codec.NONE,),
}
"""What a name means otherwise, in one class."""

LEFT_OUT: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("FetchRequest", "forgotten_topics_data"),  # only said in a session
        ("ShareFetchRequest", "forgotten_topics_data"),  # a partition is not wanted and forgotten at once
        ("DeleteTopicState", "topic_id"),  # a name or an id
        ("MetadataRequestTopic", "topic_id"),  # the same
        ("DescribeTopicPartitionsRequest", "cursor"),  # all on the first page
        ("DescribeTopicPartitionsResponse", "next_cursor"),
    }
)
"""What stays as it is: brokers refuse it together with the rest."""

OLD_RECORDS: Final[Mapping[type[Struct], range]] = {
    produce.PartitionProduceData: range(3),
    fetch.PartitionData: range(4),
}
"""In which versions records are message sets."""

HINTS: Final[frozenset[str]] = frozenset({"current_leader", "node_endpoints", "diverging_epoch", "snapshot_id"})
"""What brokers add to errors."""

REAL_BROKERS: Final[frozenset[str]] = frozenset(
    {"broker_id", "broker_ids", "replicas"} | {"adding_replicas", "removing_replicas"}
)
"""Where administrators name brokers: by the cluster's numbers there, by the mesh's here."""
OF_A_QUORUM: Final[frozenset[tuple[type[Struct], str]]] = frozenset(
    {
        (describe_quorum.PartitionData, "leader_id"),
        (describe_quorum.ReplicaState, "replica_id"),
        (describe_quorum.Node, "node_id"),
        (UnregisterControllerRequest, "controller_id"),
    }
)
"""The same, of controllers."""


def sample(cls: type[M], version: int, side: Side, mood: Mood = Mood.WILLING) -> M:
    """A message with all fields of this version set, unknown tagged fields among them."""
    return _Maker(version, side, mood, tagged=spec_of(cls).is_flexible(version)).struct(cls, "", 0)


@dataclass(frozen=True, slots=True)
class _Maker:
    version: int
    side: Side
    mood: Mood
    tagged: bool

    def struct(self, cls: type[M], path: str, nth: int) -> M:
        """`nth` of its list."""
        values: dict[str, Any] = {}
        for name, spec, _ in fields_of(cls):
            if not spec.present(self.version) or (cls.__name__, name) in LEFT_OUT:
                continue
            if name in HINTS and self.mood is Mood.WILLING:
                continue
            place = f"{path}.{name}"
            if spec.repeated:
                values[name] = [self._value(cls, name, spec, f"{place}[{n}]", n) for n in (0, 1)]
            else:
                values[name] = self._value(cls, name, spec, place, nth)
        if values.get("error_code") == ErrorCode.NONE and "error_message" in values:
            values["error_message"] = None
        tags = {UNKNOWN_TAG + nth: f"tag of {path}".encode()} if self.tagged else {}
        return cls(**values, unknown_tags=tags)

    def _value(self, cls: type[Struct], name: str, spec: FieldSpec, path: str, nth: int) -> Any:
        if spec.struct is not None:
            return self.struct(spec.struct, path, nth)
        if spec.names is Named.TOPIC:
            return TOPICS[nth]
        if name == "topic_id":
            return mesh_topic_id(MESH_ID, TOPICS[nth]) if self.side is Side.CLIENT else cluster_topic_id(TOPICS[nth])
        if name.endswith("error_code"):
            fails = self.mood is Mood.REFUSING or (self.mood is Mood.MIXED and nth)
            return FAILURE if fails else ErrorCode.NONE
        if name in REAL_BROKERS or (cls, name) in OF_A_QUORUM:
            return BROKER_ID + (ORDINAL * 1_000_000 if self.side is Side.CLIENT else 0)
        if name == "records":
            return self._records(cls, path)
        words = OF_CLASS.get((cls.__name__, name)) or WORDS.get(name)
        return words[nth % len(words)] if words else _anything(spec.kind, name, path)

    def _records(self, cls: type[Struct], path: str) -> bytes:
        """A batch for each place, and the same records as clients of old write and read them."""
        old = self.side is Side.CLIENT and self.version in OLD_RECORDS.get(cls, ())
        if cls is produce.PartitionProduceData:
            return _message_set(path, 0) if old else _batch(path, 0)
        stored = _batch(path, FIRST_OFFSET)
        if not old:
            return stored
        magic = 0 if self.version < 2 else 1
        (found,) = message_sets_of((Stored(stored, FIRST_OFFSET, 1 << 20),), magic, 1 << 20)
        assert isinstance(found, Readable)
        return found.messages


def _message_set(text: str, offset: int) -> bytes:
    out = bytearray()
    write_message(out, 0, Record(offset, -1, b"key", text.encode()))
    return bytes(out)


def _batch(text: str, offset: int) -> bytes:
    (found,) = batches_of((_message_set(text, 0),))
    assert isinstance(found, bytes)
    return offset.to_bytes(8, "big") + found[8:]


def _anything(kind: Type, name: str, path: str) -> Any:
    """A value of its own for each place, none of them a field's default."""
    number = zlib.crc32(path.encode())
    match kind:
        case Type.BOOL:
            return True
        case Type.INT8:
            return 1 + number % 100
        case Type.INT16 | Type.UINT16:
            return 1 + number % 10_000
        case Type.INT32:
            return 1 + number % 20_000
        case Type.INT64:
            return (1 << 40) + number
        case Type.FLOAT64:
            return number + 0.5
        case Type.UUID:
            return number.to_bytes(16, "big")
        case Type.STRING:
            return f"{name}-{number % 1000}"
        case _:
            return f"{name}-{number % 1000}".encode()
