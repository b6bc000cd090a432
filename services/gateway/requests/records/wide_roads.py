"""The memory of a connection for Produce requests with several partitions (`wide_road`).

No I/O, all bounded.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.routing import Route, RoutingTable
from mesh.traffic.counting import Key
from services.gateway.counting import Count
from services.gateway.requests.knowledge import ClusterKnowledge, TopicKnowledge
from services.gateway.requests.records.producer_memory import SeamKey
from services.gateway.requests.records.roads import HEAD_AT, LENGTHS_REMEMBERED
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import HEADER_BYTES, BatchHeader, read_kept_header
from services.gateway.wire.frames import SIZE_BYTES
from services.gateway.wire.primitives import Buffer, WireError, unpack_int32
from services.gateway.wire.scanner import ProduceScan, ProduceTopic, first_headers, led_by, scan_produce
from services.gateway.wire.scanner.bounds import IDS_SINCE

if TYPE_CHECKING:
    from services.gateway.requests.memory import Memory

HEADS_REMEMBERED: Final = 8
"""Heads of one connection: as a rule its client has one name, and one time-out."""
LEGS_REMEMBERED: Final = 200
"""Legs of one head: one for each topic. About 1 KB each."""
PARTITIONS_AT_MOST: Final = 1_000
"""Partitions of one request. For each of them some 200 bytes stay until the answer, and no limit of memory counts these
bytes. Requests with more partitions get a plan."""
_PRODUCE: Final = int(ApiKey.PRODUCE)


@dataclass(slots=True, eq=False)
class Leg:
    """The knowledge of one topic of such requests."""

    name: str
    topic_id: bytes
    """The id by which clients name the topic, if they do."""
    written: bytes
    """The topic's name as the cluster reads it, in the place of the id."""
    sent_version: int
    route: Route
    knowledge: ClusterKnowledge
    known: TopicKnowledge
    """The knowledge of the topic: another object as soon as the cluster reports a change."""
    seam: SeamKey | None
    """The seam of one of its partitions, if the topic has moved: its last cluster may have batches that producers
    repeat."""
    is_single: bool
    """Whether all partitions have a single replica."""
    counted_as: Key | None = None
    """The key of the topic in the traffic of clients."""

    def leads_on(self, topic: ProduceTopic, memory: "Memory", now: float) -> bool:
        """Whether plans would still agree with this leg; as `Road.leads_on`, but for refusals."""
        knowledge, name = self.knowledge, self.known.name
        if knowledge.down is not None or knowledge.topics.get(name) is not self.known or name in knowledge.stale:
            return False
        seam = self.seam
        if seam is None:
            return True
        if memory.doubts or memory.passages:
            return False
        called, _, cluster, upstream, visit, before = seam
        return all(
            memory.seams.is_closed((called, part.partition, cluster, upstream, visit, before), now)
            for part in topic.partitions
        )


class Course(NamedTuple):
    """The course of one request."""

    place: tuple[str, int]
    scan: ProduceScan
    """It has the places of fields in the request; when the request is gone, only its topics and partitions count."""
    legs: list[Leg]
    """The legs of its topics."""
    headers: bytes
    """The header of the first batch of each partition."""

    @property
    def sent_version(self) -> int:
        return self.legs[0].sent_version

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple([leg.name for leg in self.legs])

    def rewritten(self, frame: memoryview) -> list[Buffer]:
        """The request with names in the place of ids, behind its correlation id."""
        pieces: list[Buffer] = []
        at = HEAD_AT
        for topic, leg in zip(self.scan.topics, self.legs, strict=True):
            pieces += (frame[at : topic.start], leg.written)
            at = topic.partitions_at
        pieces.append(frame[at:])
        return pieces

    def named(self) -> ProduceScan:
        """The scan with names, if the request has ids."""
        scan = self.scan
        if scan.version < IDS_SINCE:
            return scan
        return scan.of([topic.named(leg.name) for topic, leg in zip(scan.topics, self.legs, strict=True)])

    def batches(self) -> dict[tuple[str, int], BatchHeader]:
        """Headers by topic and partition, of producers that number their batches."""
        found: dict[tuple[str, int], BatchHeader] = {}
        at = 0
        for topic, leg in zip(self.scan.topics, self.legs, strict=True):
            for part in topic.partitions:
                batch = read_kept_header(self.headers[at : at + HEADER_BYTES])
                at += HEADER_BYTES
                if batch is not None and batch.is_idempotent:
                    found.setdefault((leg.name, part.partition), batch)
        return found

    def is_to(self, topic: str, partition: int) -> bool:
        """Whether this partition is among those of the request."""
        for each, leg in zip(self.scan.topics, self.legs, strict=True):
            if leg.name == topic and any(part.partition == partition for part in each.partitions):
                return True
        return False


@dataclass(slots=True, eq=False)
class WideRoad:
    """Requests of one head."""

    head: bytes
    version: int
    client_id: str | None
    body_at: int
    """The offset of the body in their frames."""
    acks: int
    timeout_ms: int
    table: RoutingTable
    legs: dict[str | bytes, Leg] = field(default_factory=dict)
    """Legs by the clients' names of the topics, or by ids."""
    looks: dict[tuple[str, int], Any] = field(default_factory=dict)
    """The broker connection of the last check of each of these places, with the state that shows whether it still
    counts."""
    answers: Count | None = None
    """The count of answered requests."""

    def course(self, frame: memoryview, memory: "Memory", now: float) -> Course | None:
        """The course of this request, if it can go straight on.

        None: its plan has to read it.
        """
        if memory.refusals:
            return None
        try:
            scan = scan_produce(frame, self.version, self.body_at, len(frame))
        except WireError:  # the plan reports it
            return None
        legs: list[Leg] = []
        by_id = self.version >= IDS_SINCE
        broker: int | None = None
        entries = 0
        for topic in scan.topics:
            leg = self.legs.get(topic.topic_id if by_id else topic.name)
            if leg is None or not leg.leads_on(topic, memory, now):
                return None
            entries += len(topic.partitions)
            leader = led_by(topic, leg.known.leaders)
            if leader is None or (broker is not None and leader != broker):
                return None
            broker = leader
            legs.append(leg)
        if broker is None or not 1 < entries <= PARTITIONS_AT_MOST:
            return None
        first = legs[0]
        for leg in legs:
            if leg.knowledge is not first.knowledge or leg.sent_version != first.sent_version:
                return None
        headers = first_headers(frame, scan)
        return None if headers is None else Course((first.route.cluster, broker), scan, legs, headers)

    def learn(self, key: str | bytes, leg: Leg) -> None:
        """Remembers the leg of the topic with this name or id."""
        if len(self.legs) >= LEGS_REMEMBERED and key not in self.legs:
            del self.legs[next(iter(self.legs))]
        self.legs[key] = leg

    def is_quick(self, legs: list[Leg]) -> bool:
        """Whether the broker answers as soon as it has written the batches, without a wait for other replicas."""
        return self.acks == 1 or all(leg.is_single for leg in legs)


class WideRoads:
    """The wide roads of one connection, by their heads."""

    __slots__ = ("_by_head", "ends")

    def __init__(self) -> None:
        self._by_head: dict[bytes, WideRoad] = {}
        self.ends: list[int] = []
        """The ends of heads; without any there is no road."""

    def find(self, frame: memoryview) -> WideRoad | None:
        """The road of a request, which is in `frame` as a whole, if a similar request has passed."""
        (key_and_version,) = unpack_int32(frame, SIZE_BYTES)
        if key_and_version >> 16 != _PRODUCE:
            return None
        for end in self.ends:
            road = self._by_head.get(bytes(frame[HEAD_AT:end]))
            if road is not None:
                return road if key_and_version & 0xFFFF == road.version else None
        return None

    def of_head(self, head: bytes) -> WideRoad | None:
        return self._by_head.get(head)

    def learn(self, road: WideRoad) -> bool:
        """Adds a road; returns whether there is room for it."""
        end = HEAD_AT + len(road.head)
        if end not in self.ends:
            if len(self.ends) >= LENGTHS_REMEMBERED:
                return False
            self.ends.append(end)
        if len(self._by_head) >= HEADS_REMEMBERED and road.head not in self._by_head:
            del self._by_head[next(iter(self._by_head))]
        self._by_head[road.head] = road
        return True

    def leave(self, road: WideRoad) -> None:
        """Removes a road that leads to its broker no more."""
        self._by_head.pop(road.head, None)

    def __len__(self) -> int:
        return len(self._by_head)
