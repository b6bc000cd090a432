"""The keys and schemas of protected values, as plans ask for them: keys to write by, and those of records."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from mesh.protection.fields import Schemas
from mesh.protection.keys import DataKey, NoKey, Wrapped


class SchemaOf(NamedTuple):
    """A question to the registry: whether it has the schema of this prefix under this subject; empty: under any."""

    prefix: bytes
    subject: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The data keys that a request needs."""

    writing: frozenset[str] = frozenset()
    """Ids of keys by which values are to be encrypted now."""
    reading: frozenset[Wrapped] = frozenset()
    schemas: frozenset[bytes] = frozenset()
    """Prefixes that name schemas of the registry."""
    registered: frozenset[SchemaOf] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """The data keys, or the reasons why there are none."""

    writing: Mapping[str, DataKey | NoKey] = field(default_factory=dict)
    reading: Mapping[Wrapped, bytes | NoKey] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)
    registered: Mapping[SchemaOf, NoKey | None] = field(default_factory=dict)
    """None: the registry has it."""


class DataKeys(Protocol):
    """Finds data keys within a bounded time."""

    def find(self, wanted: Wanted, done: Callable[[Found], None]) -> None:
        """Calls `done` once, at once or later."""
        ...


class NoDataKeys:
    """A gateway that has no service of keys."""

    def find(self, wanted: Wanted, done: Callable[[Found], None]) -> None:
        none = NoKey("this gateway has no service of keys (KEY_SERVICE)", is_gone=False)
        unread = NoKey("this gateway has no schema registry (SCHEMA_REGISTRY_URL)", is_gone=False)
        found = (dict.fromkeys(wanted.writing, none), dict.fromkeys(wanted.reading, none))
        done(Found(*found, dict.fromkeys(wanted.schemas, unread), dict.fromkeys(wanted.registered, unread)))


@dataclass(frozen=True, slots=True)
class FindKeys:
    """A command of plans. Result: Found, which has an entry for all that is wanted."""

    keys: DataKeys
    wanted: Wanted


def find_keys(keys: DataKeys, wanted: Wanted) -> Generator[FindKeys, Any, Found]:
    result: Found = yield FindKeys(keys, wanted)
    return result
