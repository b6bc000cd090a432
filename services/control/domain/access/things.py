"""The clusters, topics and sidecars that a call names, and the grants that have them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from mesh.rpc import grants


class Kind(Enum):
    """A kind of thing to which a grant may be narrowed."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing that a call names."""

    kind: Kind
    name: str
    is_beginning: bool = False
    """The call is about all topics whose names begin with `name`."""

    def __str__(self) -> str:
        if not self.is_beginning:
            return f"{self.kind.value} {self.name}"
        return f"topics {self.name}*" if self.name else "topics that no prefix bounds"


def bounds(narrowing: grants.Narrowing) -> dict[Kind, Collection[str]]:
    """The kinds to which a grant is narrowed, each with what the grant has."""
    wanted = {
        Kind.CLUSTER: narrowing.clusters,
        Kind.TOPIC: narrowing.topic_prefixes,
        Kind.SIDECAR: narrowing.sidecars,
    }
    return {kind: names for kind, names in wanted.items() if names}


def why_outside(narrowing: grants.Narrowing, things: Collection[Thing]) -> str:
    """Why a grant that is narrowed like this does not allow a call that names these things; empty if it does."""
    for kind, names in bounds(narrowing).items():
        named = [thing for thing in things if thing.kind is kind]
        if not named:
            return f"the call names no {kind.value}, and so concerns the whole mesh"
        for thing in named:
            if not _has(kind, names, thing.name):
                return f"the call names {thing}"
    return ""


def _has(kind: Kind, names: Collection[str], name: str) -> bool:
    return any(name.startswith(each) for each in names) if kind is Kind.TOPIC else name in names
