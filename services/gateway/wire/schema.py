"""Declares Kafka messages as dataclasses whose fields state type, versions, null, default and tag.

    @message(api_key=3, kind=Kind.REQUEST, versions=(0, 13), flexible=9)
    @dataclass(slots=True)
    class MetadataRequest(Struct):

        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
        allow_auto_topic_creation: bool = boolean(since=4, default=True)

Fields stand in the order of the wire. Names and meanings are those of Kafka's own message specifications; a test
compares every declaration with them. `codec` compiles the declarations into a reader and a writer for each version.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar, cast

from services.gateway.wire.primitives import Buffer

T = TypeVar("T")

NO_UUID = bytes(16)
"""Kafka's "no id" (an unset topic id)."""


class Type(Enum):
    """The types of fields. The value of those with a fixed size is the letter of Python's `struct`."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    STRUCT = "struct"

    @property
    def fixed(self) -> bool:
        return len(self.value) < 4


class Kind(Enum):
    REQUEST = "request"
    RESPONSE = "response"
    DATA = "data"


class Named(Enum):
    """The kinds of things whose names clients choose; the values are those of `entityType` in the specifications."""

    TOPIC = "topicName"
    GROUP = "groupId"
    TRANSACTIONAL_ID = "transactionalId"


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The declaration of a field, for the codec."""

    kind: Type
    since: int = 0
    until: int | None = None
    nullable_since: int | None = None
    ignorable: bool = False
    tag: int | None = None
    struct: type["Struct"] | None = None
    repeated: bool = False
    names: Named | None = None
    """The kind of thing that the text names."""

    def present(self, version: int) -> bool:
        return version >= self.since and (self.until is None or version <= self.until)

    def nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


@dataclass(slots=True)
class Struct:
    """The base of all messages and their parts. It keeps unknown tagged fields and sends them on."""

    unknown_tags: dict[int, bytes] = field(default_factory=dict, kw_only=True, repr=False)

    def __init_subclass__(cls) -> None:
        # `dataclass` writes the signature where a class has no docstring: a sixth of the time that all messages take
        cls.__doc__ = cls.__doc__ or cls.__name__


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The content of the `@message` line."""

    cls: type[Struct]
    kind: Kind
    versions: tuple[int, int]
    flexible: int | None
    api_key: int | None

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def supports(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]


_specs: dict[type, MessageSpec] = {}
_by_key: dict[tuple[int, Kind], MessageSpec] = {}


def message(
    *, kind: Kind, versions: tuple[int, int], flexible: int | None, api_key: int | None = None
) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as a whole message. `api_key` is absent for data that travels inside other messages."""

    def register(cls: type[T]) -> type[T]:
        spec = MessageSpec(cast(type[Struct], cls), kind, versions, flexible, api_key)
        _specs[cls] = spec
        if api_key is not None:
            _by_key[api_key, kind] = spec
        return cls

    return register


def spec_of(cls: type) -> MessageSpec:
    try:
        return _specs[cls]
    except KeyError:
        raise TypeError(f"{cls.__name__} is not a message: @message is missing") from None


def api_key_of(message: Struct) -> int:
    """-1 for a message of no API."""
    key = spec_of(type(message)).api_key
    return -1 if key is None else key


def messages() -> list[MessageSpec]:
    """All messages that have been imported."""
    return list(_specs.values())


def message_of(api_key: int, kind: Kind) -> MessageSpec | None:
    return _by_key.get((api_key, kind))


def fields_of(cls: type[Struct]) -> list[tuple[str, FieldSpec, Callable[[], Any]]]:
    """(name, spec, maker of the default) of each field, in the order of the wire."""
    found = []
    for item in fields(cls):
        spec = item.metadata.get("wire")
        if spec is not None:
            found.append((item.name, spec, _default_maker(item)))
    return found


def _default_maker(item: Any) -> Callable[[], Any]:
    if callable(item.default_factory):
        return cast(Callable[[], Any], item.default_factory)
    value = item.default
    return lambda: value


# --- the fields: each returns a dataclass field, typed as what it holds ---------------------------------------------


def _field(default: T, spec: FieldSpec) -> T:
    return field(default=default, metadata={"wire": spec})


def boolean(
    *, since: int = 0, until: int | None = None, default: bool = False, ignorable: bool = False, tag: int | None = None
) -> bool:
    return _field(default, FieldSpec(Type.BOOL, since, until, None, ignorable, tag))


def _integer(kind: Type) -> Callable[..., int]:
    def make(
        *, since: int = 0, until: int | None = None, default: int = 0, ignorable: bool = False, tag: int | None = None
    ) -> int:
        return _field(default, FieldSpec(kind, since, until, None, ignorable, tag))

    return make


int8 = _integer(Type.INT8)
int16 = _integer(Type.INT16)
uint16 = _integer(Type.UINT16)
int32 = _integer(Type.INT32)
int64 = _integer(Type.INT64)


def float64(*, since: int = 0, until: int | None = None, default: float = 0.0, ignorable: bool = False) -> float:
    return _field(default, FieldSpec(Type.FLOAT64, since, until, None, ignorable))


def uuid(*, since: int = 0, until: int | None = None, ignorable: bool = False, tag: int | None = None) -> bytes:
    """A UUID as its 16 bytes; `NO_UUID` where there is none."""
    return _field(NO_UUID, FieldSpec(Type.UUID, since, until, None, ignorable, tag))


def string(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> str:
    """Text. Declare the attribute `str | None` where `nullable_since` is given."""
    return _field(cast(str, default), FieldSpec(Type.STRING, since, until, nullable_since, ignorable, tag))


def _name_of(names: Named) -> Callable[..., str]:
    def make(
        *,
        since: int = 0,
        until: int | None = None,
        nullable_since: int | None = None,
        default: str | None = "",
        ignorable: bool = False,
        tag: int | None = None,
    ) -> str:
        spec = FieldSpec(Type.STRING, since, until, nullable_since, ignorable, tag, names=names)
        return _field(cast(str, default), spec)

    return make


topic_name = _name_of(Named.TOPIC)
group_name = _name_of(Named.GROUP)
transaction_name = _name_of(Named.TRANSACTIONAL_ID)


def data(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
) -> Buffer:
    """Opaque bytes, records among them: decoded as a slice of the buffer, not copied."""
    return _field(cast(Buffer, default), FieldSpec(Type.BYTES, since, until, nullable_since, ignorable, tag))


def struct(
    element: type[T],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    ignorable: bool = False,
    tag: int | None = None,
) -> T:
    """A part with fields of its own. Where `nullable_since` is given, its default is None: declare the attribute so."""
    spec = FieldSpec(Type.STRUCT, since, until, nullable_since, ignorable, tag, cast(type[Struct], element))
    if nullable_since is not None:
        return cast(T, field(default=None, metadata={"wire": spec}))
    return field(default_factory=element, metadata={"wire": spec})


def array(
    element: type[T],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: tuple[()] | None = (),
    ignorable: bool = False,
    tag: int | None = None,
) -> list[T]:
    """A list of structs. `default=None` where the absent list is null and not empty."""
    spec = FieldSpec(
        Type.STRUCT, since, until, nullable_since, ignorable, tag, cast(type[Struct], element), repeated=True
    )
    return _list(default, spec)


def _list(default: tuple[()] | None, spec: FieldSpec) -> list[Any]:
    if default is None:
        return cast(list[Any], field(default=None, metadata={"wire": spec}))
    return cast(list[Any], field(default_factory=list, metadata={"wire": spec}))


def _list_of(kind: Type, names: Named | None = None) -> Callable[..., list[Any]]:
    def make(
        *,
        since: int = 0,
        until: int | None = None,
        nullable_since: int | None = None,
        default: tuple[()] | None = (),
        ignorable: bool = False,
        tag: int | None = None,
    ) -> list[Any]:
        spec = FieldSpec(kind, since, until, nullable_since, ignorable, tag, repeated=True, names=names)
        return _list(default, spec)

    return make


int8s: Callable[..., list[int]] = _list_of(Type.INT8)
int16s: Callable[..., list[int]] = _list_of(Type.INT16)
int32s: Callable[..., list[int]] = _list_of(Type.INT32)
int64s: Callable[..., list[int]] = _list_of(Type.INT64)
strings: Callable[..., list[str]] = _list_of(Type.STRING)
topic_names: Callable[..., list[str]] = _list_of(Type.STRING, Named.TOPIC)
group_names: Callable[..., list[str]] = _list_of(Type.STRING, Named.GROUP)
transaction_names: Callable[..., list[str]] = _list_of(Type.STRING, Named.TRANSACTIONAL_ID)
