"""The state of a rule on the target cluster: records of the compacted topic `mesh.record-positions`. No I/O.

Each is written in the transaction of the records that it is about. Keys and values are JSON, so that people can read
them. The keys of a rule:

- `[MESH, "apples", 11]`: the orders carried out for the rule that event 11 created.
- `[MESH, "apples", 11, "apples-red", 3]`: the next offset to read.
- `[MESH, "apples", 11, "apples-red", 3, "points"]`: signposts for the translation of offsets (`points`).
- `[MESH, "apples", 11, "apples-red", 3, "topic_id"]`: Kafka's id of the topic that the position belongs to.

MESH distinguishes the rule from rules of other meshes with the same target. The event's position distinguishes the rule
from an earlier, removed rule with the same id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from services.router.forwarding.points import Point, Points

TOPIC = "mesh.record-positions"
PARTITIONS = 16
"""A rule has one of them: rules of one partition wait for each other's open transactions when they start."""


class SourcePartition(NamedTuple):
    """A partition of the source cluster."""

    topic: str
    number: int


class Entry(NamedTuple):
    """A record of the topic; no value: it goes."""

    key: bytes
    value: bytes | None


@dataclass(slots=True)
class CarriedOut:
    """Orders that were carried out."""

    begun: bool = False
    """Whether the topics that were there at the beginning have their positions."""
    rewound: int = 0
    """Position of the event of the last rewind."""
    synced: int = 0
    """Position of the event of the last one-time sync of groups."""


@dataclass(slots=True)
class Memory:
    """All of it for one rule, as read back."""

    mesh_id: str
    rule_id: str
    created: int
    carried_out: CarriedOut = field(default_factory=CarriedOut)
    positions: dict[SourcePartition, int] = field(default_factory=dict)
    points: dict[SourcePartition, Points] = field(default_factory=dict)
    topic_ids: dict[SourcePartition, str] = field(default_factory=dict)
    """Which topic of the name a position is of; absent or empty: nobody knows."""
    keys: set[bytes] = field(default_factory=set)
    """All there are of this rule."""
    outdated: set[bytes] = field(default_factory=set)
    """Those of an earlier rule of this id."""

    @property
    def partition(self) -> int:
        """The partition of the topic that holds this rule's records."""
        return crc32(self.rule_id.encode()) % PARTITIONS

    def fold(self, key: bytes | None, value: bytes | None) -> None:
        """Takes in a record of the topic. ValueError for a record that no worker wrote."""
        if key is None or not key.startswith(_json([self.mesh_id, self.rule_id])[:-1] + b","):
            return  # another rule's
        _, _, created, *rest = json.loads(key)
        known = self.keys if created == self.created else self.outdated
        if value is None:
            known.discard(key)
            return
        known.add(key)
        if created == self.created:
            self._learn(rest, json.loads(value))

    def _learn(self, about: list[Any], value: Any) -> None:
        match about:
            case []:
                self.carried_out = CarriedOut(**value)
            case [topic, number]:
                self.positions[SourcePartition(topic, number)] = value
            case [topic, number, "points"]:
                self.points[SourcePartition(topic, number)] = Points(Point(*each) for each in value)
            case [topic, number, "topic_id"]:
                self.topic_ids[SourcePartition(topic, number)] = value

    def carried_out_entry(self) -> Entry:
        done = self.carried_out
        return self._entry((), {"begun": done.begun, "rewound": done.rewound, "synced": done.synced})

    def position_entry(self, source: SourcePartition, position: int) -> Entry:
        return self._entry(source, position)

    def points_entry(self, source: SourcePartition, points: Points) -> Entry:
        return self._entry((*source, "points"), [list(each) for each in points.kept])

    def topic_id_entry(self, source: SourcePartition, topic_id: str) -> Entry:
        return self._entry((*source, "topic_id"), topic_id)

    def forgetting(self) -> Iterator[Entry]:
        """The tombstones for all records of the rule, when the rule is removed."""
        return (Entry(key, None) for key in sorted(self.keys | self.outdated))

    def forgetting_outdated(self) -> Iterator[Entry]:
        """The tombstones for the records of an earlier rule with this id."""
        return (Entry(key, None) for key in sorted(self.outdated))

    def _entry(self, about: tuple[Any, ...], value: Any) -> Entry:
        return Entry(_json([self.mesh_id, self.rule_id, self.created, *about]), _json(value))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
