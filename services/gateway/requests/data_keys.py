"""The keys and schemas of protected values, as plans ask for them: keys to write by, and those of records."""

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from mesh.protection.fields import Schemas
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.schemas.schema import RegisteredSchema


class SchemaOf(NamedTuple):
    """A question to the registry: whether it has the schema of this prefix under this subject; empty: under any."""

    prefix: bytes
    subject: str


class LatestOf(NamedTuple):
    """A question to the registry: the latest schema of this subject."""

    subject: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The data keys and schemas that a request needs."""

    writing: frozenset[str] = frozenset()
    """Ids of keys by which values are to be encrypted now."""
    reading: frozenset[Wrapped] = frozenset()
    schemas: frozenset[bytes] = frozenset()
    """Prefixes that name schemas of the registry."""
    registered: frozenset[SchemaOf] = frozenset()
    latest: frozenset[LatestOf] = frozenset()

    def with_schemas(self, schemas: Collection[bytes | SchemaOf]) -> "Wanted":
        """With these schemas, too: by their prefixes, and whether they are registered."""
        prefixes = frozenset(each for each in schemas if isinstance(each, bytes))
        questions = frozenset(each for each in schemas if isinstance(each, SchemaOf))
        return replace(self, schemas=self.schemas | prefixes, registered=self.registered | questions)


@dataclass(frozen=True, slots=True)
class Found:
    """The data keys and schemas, or the reasons why there are none."""

    writing: Mapping[str, DataKey | NoKey] = field(default_factory=dict)
    reading: Mapping[Wrapped, bytes | NoKey] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)
    registered: Mapping[SchemaOf, NoKey | None] = field(default_factory=dict)
    """None: the registry has it."""
    latest: Mapping[LatestOf, RegisteredSchema | NoKey] = field(default_factory=dict)


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
        schemas, registered = dict.fromkeys(wanted.schemas, unread), dict.fromkeys(wanted.registered, unread)
        done(Found(*found, schemas, registered, dict.fromkeys(wanted.latest, unread)))


@dataclass(frozen=True, slots=True)
class FindKeys:
    """A command of plans. Result: Found, which has an entry for all that is wanted."""

    keys: DataKeys
    wanted: Wanted


def find_keys(keys: DataKeys, wanted: Wanted) -> Generator[FindKeys, Any, Found]:
    result: Found = yield FindKeys(keys, wanted)
    return result
