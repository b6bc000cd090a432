"""The records of partition 0 of `mesh.transactions`, and their content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from mesh.transactions.registry import EPOCHS
from mesh.transactions.states import ONGOING, SECOND_PROTOCOL_SINCE, was_committed

DECIDED: Final = "decided"
UNFENCED: Final = "unfenced"
NOTE_VALUE: Final = b"{}"


class Identity(NamedTuple):
    """Producer id and epoch, by which a coordinator distinguishes the producers of one transactional id."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Part:
    """One cluster's share of a transaction: the identity that writes there, and the start (ms of the cluster's clock).

    An identity of the first protocol goes through many transactions; the start distinguishes them.
    """

    identity: Identity
    started_ms: int

    def is_open(self, state: str, identity: Identity, started_ms: int) -> bool:
        """Whether this very part waits for its commit, and not one of a later transaction.

        The arguments are what the cluster's coordinator says.
        """
        return state == ONGOING and (identity, started_ms) == (self.identity, self.started_ms)


class LogPlace(NamedTuple):
    """A partition, by the cluster's own name for the topic."""

    cluster: str
    topic: str
    partition: int


UNKNOWN_OFFSET: Final = -1
"""The leader of a partition did not tell its last stable offset."""


@dataclass(frozen=True)
class Decision:
    """A transaction over several clusters is committed, with these parts.

    Without slots, so that the bytes of its record are made once: readers compare decisions by these bytes.
    """

    transactional_id: str
    at_home: Identity
    version: int
    """The version of EndTxn that the client sent: the two protocols end transactions differently."""
    parts: Mapping[str, Part]
    stable: Mapping[LogPlace, int] = field(default_factory=dict)
    """The last stable offset of each partition of the transaction, home's included, when this was decided."""

    def is_committed(self, state: str, identity: Identity) -> bool:
        """Whether home has committed the transaction, by the state and identity that home's coordinator tells."""
        second = self.version >= SECOND_PROTOCOL_SINCE
        epochs = {self.at_home.epoch % EPOCHS}
        same_producer = identity.producer_id == self.at_home.producer_id
        return same_producer and was_committed(state, identity.epoch, epochs, second_protocol=second)

    @cached_property
    def key(self) -> bytes:
        return _packed([DECIDED, self.transactional_id, *self.at_home])

    @cached_property
    def value(self) -> bytes:
        parts = {cluster: [*part.identity, part.started_ms] for cluster, part in self.parts.items()}
        stable: dict[str, dict[str, list[list[int]]]] = {}
        for place, offset in self.stable.items():
            stable.setdefault(place.cluster, {}).setdefault(place.topic, []).append([place.partition, offset])
        return _packed({"version": self.version, "parts": parts, "stable": stable})


@dataclass(frozen=True, slots=True)
class DecisionKey:
    """The key of a record that makes or ends a decision."""

    transactional_id: str
    at_home: Identity


@dataclass(frozen=True, slots=True)
class NoteKey:
    """The key of a record that makes or ends a note."""

    transactional_id: str
    cluster: str


def note_key(transactional_id: str, cluster: str) -> bytes:
    return _packed([UNFENCED, transactional_id, cluster])


def read_key(key: bytes) -> DecisionKey | NoteKey | None:
    """None for a key that no gateway wrote."""
    match _read(key):
        case [str(kind), str(transactional_id), str(cluster)] if kind == UNFENCED:
            return NoteKey(transactional_id, cluster)
        case [str(kind), str(transactional_id), int(producer_id), int(epoch)] if kind == DECIDED:
            return DecisionKey(transactional_id, Identity(producer_id, epoch))
    return None


def read_decision(key: DecisionKey, value: bytes) -> Decision | None:
    """None for a value that no gateway wrote."""
    match _read(value):
        case {"version": int(version), "parts": dict(parts), **more}:
            stable = more.get("stable")
            offsets = dict(_stable(stable)) if isinstance(stable, dict) else {}
            return Decision(key.transactional_id, key.at_home, version, dict(_parts(parts)), offsets)
    return None


def _packed(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _parts(parts: Mapping[str, object]) -> Iterator[tuple[str, Part]]:
    for cluster, part in parts.items():
        match part:
            case [int(producer_id), int(epoch), int(started_ms)]:
                yield cluster, Part(Identity(producer_id, epoch), started_ms)


def _stable(stable: Mapping[str, object]) -> Iterator[tuple[LogPlace, int]]:
    for cluster, topics in stable.items():
        for topic, partitions in topics.items() if isinstance(topics, dict) else ():
            for each in partitions if isinstance(partitions, list) else ():
                match each:
                    case [int(partition), int(offset)]:
                        yield LogPlace(cluster, str(topic), partition), offset
