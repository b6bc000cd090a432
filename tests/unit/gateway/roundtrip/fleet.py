"""Clusters with any number of brokers, as plans see them: each broker answers for what it leads, as told in advance.

Messages are read and written by their schemas: an *item* is a partition of a topic, or a topic where an API knows no
partitions, and every item is asked for with a number of its own and answered with another.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from services.gateway.requests.groups.group_kinds import KINDS
from services.gateway.requests.knowledge import BrokerAddress, TopicKnowledge
from services.gateway.requests.plan import Body, Broker, Call, Outcome, RawResponse, Unreachable, Verbatim
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode, encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_request_header, parse_response_header
from services.gateway.wire.schema import FieldSpec, Kind, Named, Struct, fields_of, message_of
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.roundtrip.stage import nothing_known
from tests.unit.gateway.wire.records import batch

INDEXES: Final = ("partition_index", "index", "partition", "partition_id")
NUMBERS: Final = ("timestamp", "offset", "committed_offset", "fetch_offset", "num_partitions", "count")
"""Where a request holds the number of an item."""
RESULTS: Final = ("base_offset", "high_watermark", "offset", "low_watermark", "committed_offset")
"""Where an answer does."""
CODES: Final = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST)
"""What brokers say of items; none of them makes the gateway look elsewhere."""
WHOLE_TOPIC: Final = -1
TOPICS: Final = tuple("abcdef")
NO_RULE: Final = "nowhere"
"""A topic that no rule matches."""
MESH_ID: Final = "mesh-id"
"""That of playbooks."""
NAMES: Final = {mesh_topic_id(MESH_ID, topic): topic for topic in (*TOPICS, NO_RULE)}


class Item(NamedTuple):
    topic: str
    partition: int = WHOLE_TOPIC


class Said(NamedTuple):
    """Of an item, in a question or an answer; what its API has no field for is None."""

    number: int | None = None
    records: bytes | None = None
    error: int | None = None


def number_of(*place: object) -> int:
    return 1 + zlib.crc32(repr(place).encode()) % 1_000_000


# --- messages by their schemas -------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    """Where a message holds its items."""

    topics: str
    topic: Callable[..., Struct] | None
    """None: topics are a list of names."""
    name: str
    """The field that says which topic it is, by its name or by its id."""
    partitions: str | None
    partition: Callable[..., Struct] | None
    """None: partitions are a list of numbers."""


def shape_of(cls: type[Struct], version: int) -> _Shape:
    for name, spec in _present(cls, version):
        if spec.names is Named.TOPIC and spec.repeated:
            return _Shape(name, None, "", None, None)
        if spec.struct is None or not spec.repeated:
            continue
        inner = list(_present(spec.struct, version))
        topic = next((each for each, kind in inner if kind.names is Named.TOPIC or each == "topic_id"), None)
        if topic is not None:
            partitions = next((each for each in inner if each[0].startswith("partition") and each[1].repeated), None)
            where, what = (None, None) if partitions is None else (partitions[0], partitions[1].struct)
            return _Shape(name, spec.struct, topic, where, what)
    raise TypeError(f"{cls.__name__} has no topics")


def _present(cls: type[Struct], version: int) -> Iterator[tuple[str, FieldSpec]]:
    return ((name, spec) for name, spec, _ in fields_of(cls) if spec.present(version))


def _index_in(partition: Struct) -> str:
    return next(name for name, _, _ in fields_of(type(partition)) if name in INDEXES)


def items_of(message: Struct, version: int, numbers: Sequence[str]) -> Iterator[tuple[Item, Said]]:
    """All items of a message with what it says of them, in its order."""
    shape = shape_of(type(message), version)
    for topic in getattr(message, shape.topics):
        name = topic if shape.topic is None else getattr(topic, shape.name)
        if isinstance(name, bytes):
            name = NAMES[name]
        if shape.partitions is None:
            yield Item(name), Said() if shape.topic is None else _said(topic, version, numbers)
            continue
        for partition in getattr(topic, shape.partitions):
            if shape.partition is None:
                yield Item(name, partition), Said()
            else:
                index = getattr(partition, _index_in(partition))
                yield Item(name, index), _said(partition, version, numbers)


def _said(part: Any, version: int, numbers: Sequence[str]) -> Said:
    present = {name for name, _ in _present(type(part), version)}
    number = next((getattr(part, name) for name in numbers if name in present), None)
    records = bytes(part.records or b"") if "records" in present else None
    return Said(number, records, getattr(part, "error_code", None))


def message_about(
    cls: type[Struct], version: int, items: Iterable[tuple[Item, Said]], numbers: Sequence[str]
) -> Struct:
    """A message that says this of these items, grouped by topic."""
    shape = shape_of(cls, version)
    message = cls()
    topics: dict[str, Any] = {}
    for item, said in items:
        if item.topic not in topics:
            name = mesh_topic_id(MESH_ID, item.topic) if shape.name == "topic_id" else item.topic
            topics[item.topic] = name if shape.topic is None else shape.topic(**{shape.name: name})
        topic = topics[item.topic]
        if shape.partitions is None:
            if shape.topic is not None:
                _say(topic, version, said, numbers)
        elif shape.partition is None:
            getattr(topic, shape.partitions).append(item.partition)
        else:
            partition = shape.partition()
            setattr(partition, _index_in(partition), item.partition)
            _say(partition, version, said, numbers)
            getattr(topic, shape.partitions).append(partition)
    setattr(message, shape.topics, list(topics.values()))
    return message


def _say(part: Any, version: int, said: Said, numbers: Sequence[str]) -> None:
    present = {name for name, _ in _present(type(part), version)}
    number = next((name for name in numbers if name in present), None)
    if number is not None:
        setattr(part, number, said.number)
    if "records" in present:
        part.records = said.records
    if "error_code" in present:
        part.error_code = said.error or ErrorCode.NONE


# --- brokers -------------------------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """Where topics live, who leads what, and who is silent."""

    topics: Mapping[str, tuple[str, Sequence[int | None]]]
    """Topic -> its cluster, and the leader of each partition."""
    silent: frozenset[tuple[str, int]]
    """Cluster and broker."""
    by_leader: bool
    """Whether items go to leaders; otherwise any broker of the cluster will do."""
    api_key: int = -1
    asked: list[tuple[str, int | None, Item, Said]] = field(default_factory=list)
    """What was asked of whom, but for what stayed unanswered."""

    def world(self) -> World:
        clusters = dict.fromkeys((f"c{n}" for n in (1, 2, 3)), ())
        topics = {c: [t for t, (owner, _) in self.topics.items() if owner == c] for c in clusters}
        made = World(topics)
        for name, knowledge in made.clusters.items():
            knowledge.brokers = {broker: BrokerAddress(broker, name, 9092 + broker, None) for broker in (1, 2, 3)}
            knowledge.controller_id = 1
            for topic in topics[name]:
                knowledge.topics[topic] = TopicKnowledge(topic, topic.encode().ljust(16), tuple(self.topics[topic][1]))
        return made

    def play(self, book: Playbook, api_key: int) -> None:
        self.api_key = api_key
        while (calls := book.pending) is not None:
            book.answered(*(self._outcome(call) for call in calls))

    def answers(self, item: Item) -> bool:
        """Whether there is somebody who answers for it."""
        if item.topic not in self.topics:
            return False
        cluster, leaders = self.topics[item.topic]
        if not self.by_leader:
            return (cluster, 1) not in self.silent
        leader = leaders[item.partition] if item.partition < len(leaders) else None
        return leader is not None and (cluster, leader) not in self.silent

    def says(self, item: Item) -> Said:
        """What it says, whoever that is."""
        cluster, leaders = self.topics[item.topic]
        leader = leaders[item.partition] if self.by_leader else None
        number = number_of("answer", cluster, leader, item)
        stored = bytes(batch(repr((cluster, leader, item)).encode()))
        return Said(number, stored, CODES[number % len(CODES)])

    def whom(self, item: Item) -> tuple[str, int | None]:
        """Cluster and, where it matters, broker that are to be asked."""
        cluster, leaders = self.topics[item.topic]
        return cluster, leaders[item.partition] if self.by_leader else None

    def seen(self, item: Item, like: Said) -> Said:
        """What it says, as far as the API has room for it."""
        said = self.says(item)
        return Said(
            None if like.number is None else said.number,
            None if like.records is None else said.records,
            None if like.error is None else said.error,
        )

    def _outcome(self, call: Call) -> Outcome:
        broker = call.target.broker_id if isinstance(call.target, Broker) else 1
        if (call.cluster, broker) in self.silent:
            return Unreachable(call.cluster, "silent", never_sent=False)
        message = _read(call)
        if call.key != self.api_key:
            return self._besides(call, message)
        answer_spec = message_of(call.key, Kind.RESPONSE)
        assert answer_spec is not None
        said = []
        for item, asked in items_of(message, call.version, NUMBERS):
            self.asked.append((call.cluster, broker if self.by_leader else None, item, asked))
            said.append((item, self.says(item)))
        answer = message_about(answer_spec.cls, call.version, said, RESULTS)
        return _raw(answer, call.key, call.version) if call.raw else answer

    def _besides(self, call: Call, message: Struct) -> Struct:
        """What plans want to know before."""
        assert call.key in {ApiKey.METADATA, *(kind.api_key for kind in KINDS)}, f"{call} was not expected"
        return nothing_known(call.key, message)


def _read(call: Call) -> Struct:
    spec = message_of(call.key, Kind.REQUEST)
    assert spec is not None
    if isinstance(call.message, Verbatim):
        frame = call.message.frame
        header = parse_request_header(frame, SIZE_BYTES, len(frame))
        return decode(spec.cls, call.version, frame, header.body_offset)
    if isinstance(call.message, Body):
        return decode(spec.cls, call.version, b"".join(call.message.pieces))
    return call.message


def _raw(answer: Struct, api_key: int, version: int) -> RawResponse:
    frame = memoryview(bytearray(encode_response(answer, version, 3)))
    return RawResponse(
        frame, parse_response_header(frame, SIZE_BYTES, len(frame), api_key, version).body_offset, version
    )


def read_answer(found: object, cls: type[Struct], version: int) -> Struct:
    """An answer as the client reads it."""
    if isinstance(found, RawResponse):
        return found.decode(cls)
    if isinstance(found, Body):
        return decode(cls, version, b"".join(found.pieces))
    assert isinstance(found, cls), found
    return decode(cls, version, encode(found, version))
