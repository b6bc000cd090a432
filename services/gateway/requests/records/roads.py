"""The memory of a connection for Produce requests that may go straight on (`straight_road`).

No I/O, all bounded.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.routing import Route, RoutingTable
from mesh.traffic.counting import Key
from services.gateway.counting import Count
from services.gateway.requests.knowledge import ClusterKnowledge, TopicKnowledge
from services.gateway.requests.records.producer_memory import SeamKey
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.batches import HEADER_BYTES, BatchHeader, read_kept_header
from services.gateway.wire.frames import SIZE_BYTES
from services.gateway.wire.primitives import INT32, WireError, read_uvarint, unpack_int32
from services.gateway.wire.scanner import ProduceScan, sole_records

if TYPE_CHECKING:
    from services.gateway.requests.memory import Memory
    from services.gateway.requests.placement import Place

ROADS_REMEMBERED: Final = 200
"""Roads of one connection: one for each partition that its client writes to. About 1 KB each."""
LENGTHS_REMEMBERED: Final = 8
"""Lengths of heads: a client with more lengths of topic names takes the straight road for some of them."""
HEAD_AT: Final = SIZE_BYTES + 8
"""The place behind size, API key, version and correlation id."""
CORRELATION_END: Final = SIZE_BYTES + INT32.size
"""The end of the correlation id in an answer."""
FLEXIBLE: Final = flexible_since(ApiKey.PRODUCE) or 0
NO_TAGS: Final = b"\x00\x00\x00"
"""The empty tags of the partition, the topic, and the request."""
_THROTTLE_BYTES: Final = 4
_PRODUCE: Final = int(ApiKey.PRODUCE)
"""A constant, because to look up and shift an enumeration's member takes a while."""


class Named(NamedTuple):
    """A head with the topic's name in the place of its id, and an answer the other way round."""

    version: int
    """The cluster's version."""
    head: bytes
    topic_with_id: bytes
    """The topic in the client's answer, behind the header ..."""
    goes_on_at: int
    """... and the place in the cluster's answer from which both are the same again."""


@dataclass(slots=True, eq=False)
class Road:
    """The road of requests with one head."""

    head: bytes
    version: int
    client_id: str | None
    scan: ProduceScan
    """The scan of the first request: it has the topic, partition, acks and time-out."""
    place: "Place"
    table: RoutingTable
    knowledge: ClusterKnowledge
    known: TopicKnowledge
    """The knowledge of the topic: another object as soon as the cluster reports a change."""
    seam: SeamKey | None
    """The topic's seam, if the topic has moved: its last cluster may have batches that producers repeat."""
    route: Route
    stored: bytes
    """The beginning of an answer, behind its correlation id, if the batch is stored ..."""
    numbers: int
    """... so many bytes of numbers follow ..."""
    rest: bytes
    """... then these bytes, the throttle time, and the tags of the response if it has any."""
    named: "Named | None"
    """The names that the cluster needs, if the client names the topic by its id."""
    counted_as: Key | None = None
    """The key of the road in the traffic of clients."""
    look: Any = None
    """The broker connection of the last check, with the state that shows whether the check still counts."""
    answers: Count | None = None
    """The count of answered requests."""
    topic: str = field(init=False)
    topics: tuple[str] = field(init=False)
    partition: int = field(init=False)
    sent_version: int = field(init=False)
    is_quick: bool = field(init=False)
    """Whether the broker answers such a request as soon as it has written the batch, without a wait for other replicas.
    """
    key_and_version: int = field(init=False)
    """The first bytes of requests, behind their size."""
    head_end: int = field(init=False)
    _flexible: bool = field(init=False)
    """Whether both the request and the answer are flexible, in whatever versions."""
    _rest_at: int = field(init=False)
    _stored_bytes: int = field(init=False)
    """The size of an answer that says that the batch is stored."""

    def __post_init__(self) -> None:
        (topic,) = self.scan.topics
        self.topic, self.topics, self.partition = topic.name, (topic.name,), topic.partitions[0].partition
        self.is_quick = self.scan.acks == 1 or self.known.is_single(self.partition)
        self.sent_version = self.version if self.named is None else self.named.version
        self.key_and_version = _PRODUCE << 16 | self.version
        self.head_end = HEAD_AT + len(self.head)
        self._flexible = self.version >= FLEXIBLE
        self._rest_at = CORRELATION_END + len(self.stored) + self.numbers
        self._stored_bytes = self._rest_at + len(self.rest) + _THROTTLE_BYTES + self._flexible

    def leads_on(self, memory: "Memory", now: float) -> bool:
        """Whether the request's plan would still send it there, as far as leaders and earlier batches show."""
        knowledge, name = self.knowledge, self.known.name
        if knowledge.down is not None or knowledge.topics.get(name) is not self.known or name in knowledge.stale:
            return False
        if memory.refusals:
            return False
        seam = self.seam
        return seam is None or not (memory.doubts or memory.passages or not memory.seams.is_closed(seam, now))

    def records(self, frame: memoryview) -> tuple[int, int] | None:
        """The place of the records in such a request.

        None if other bytes follow that its plan should read.
        """
        at, end = self.head_end, len(frame)
        if self._flexible:
            try:
                return sole_records(frame, at, end)
            except WireError:
                return None
        start = at + INT32.size
        if end <= start or INT32.unpack_from(frame, at)[0] != end - start:
            return None
        return start, end

    def sole_batch(self, beginning: memoryview, size: int) -> tuple[int, BatchHeader] | None:
        """The place of the records in a request of `size` bytes, and their batch.

        Only the beginning of the request is there. None if the records are not one batch, or if bytes that the plan
        should read may follow them.
        """
        at, end, tags = self.head_end, len(beginning), 0
        if self._flexible:
            try:
                length, start = read_uvarint(beginning, at, end, "Produce.records")
            except WireError:
                return None
            length, tags = length - 1, len(NO_TAGS)  # with tags they would be longer
        else:
            start = at + INT32.size
            if end < start:
                return None
            (length,) = INT32.unpack_from(beginning, at)
        batch = read_kept_header(bytes(beginning[start : start + HEADER_BYTES]))
        if batch is None or batch.end != length or start + length + tags != size:
            return None
        return start, batch

    def is_stored(self, frame: memoryview) -> bool:
        """Whether this response says that the batch is stored, and nothing else."""
        if len(frame) != self._stored_bytes:
            return False
        said = frame.tobytes()
        return (
            said.startswith(self.stored, CORRELATION_END)
            and said.startswith(self.rest, self._rest_at)
            and not (self._flexible and said[-1])
        )


def throttle_ms(frame: memoryview, *, flexible: bool) -> int:
    """For how long, in ms, the broker reads nothing more from the connection of this Produce response.

    A response with tags, which names another leader, counts as none: its client is about to go there.
    """
    end = len(frame)
    if flexible:
        end -= 1
        if frame[end]:
            return 0
    return int.from_bytes(frame[end - _THROTTLE_BYTES : end], "big", signed=True)


class Roads:
    """The roads of one connection, by their heads."""

    __slots__ = ("_by_head", "ends")

    def __init__(self) -> None:
        self._by_head: dict[bytes, Road] = {}
        self.ends: list[int] = []
        """The ends of heads; without any there is no road."""

    def find(self, frame: memoryview) -> Road | None:
        """The road of a request, which is in `frame` as a whole, if a similar request has passed."""
        (key_and_version,) = unpack_int32(frame, SIZE_BYTES)
        if key_and_version >> 16 != _PRODUCE:
            return None
        for end in self.ends:
            road = self._by_head.get(frame[HEAD_AT:end].tobytes())
            if road is not None:
                return road if key_and_version == road.key_and_version else None
        return None

    def learn(self, road: Road) -> None:
        end = HEAD_AT + len(road.head)
        if end not in self.ends:
            if len(self.ends) >= LENGTHS_REMEMBERED:
                return
            self.ends.append(end)
        if len(self._by_head) >= ROADS_REMEMBERED and road.head not in self._by_head:
            del self._by_head[next(iter(self._by_head))]
        self._by_head[road.head] = road

    def leave(self, road: Road) -> None:
        """Removes a road that leads to its broker no more."""
        self._by_head.pop(road.head, None)

    def __len__(self) -> int:
        return len(self._by_head)
