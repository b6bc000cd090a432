"""Hypothesis strategies made from our own schemas: any message, in any version, with values its fields can hold."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import consumer_protocol
from services.gateway.wire.schema import FieldSpec, MessageSpec, Struct, Type, fields_of, messages

INSIDE_OTHERS = (consumer_protocol.ConsumerProtocolSubscription,)
"""Messages without an api key; all others are registered by the import of their package."""

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_SCALARS: dict[Type, st.SearchStrategy[Any]] = {
    Type.BOOL: st.booleans(),
    Type.INT8: st.integers(-(1 << 7), (1 << 7) - 1),
    Type.INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    Type.UINT16: st.integers(0, (1 << 16) - 1),
    Type.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    Type.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    Type.FLOAT64: st.floats(allow_nan=False),
    Type.UUID: st.binary(min_size=16, max_size=16),
    Type.STRING: _TEXT,
    Type.BYTES: st.binary(max_size=20),
}
NEWEST_THAT_KIO_HAS = ErrorCode.SHARE_SESSION_LIMIT_REACHED
"""kio knows the codes of Kafka 4.3, and reads no other one."""
_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode if code <= NEWEST_THAT_KIO_HAS])
_TIMES = st.integers(-1, 1 << 41)
"""Milliseconds that a calendar can show: kio turns them into dates."""
_DURATIONS = st.integers(0, 1 << 30)
_KEPT: dict[tuple[type[Struct], int, bool], st.SearchStrategy[Any]] = {}


def every_version() -> Iterator[tuple[MessageSpec, int]]:
    for spec in messages():
        for version in range(spec.versions[0], spec.versions[1] + 1):
            yield spec, version


def message_id(value: object) -> str:
    return value.cls.__name__ if isinstance(value, MessageSpec) else f"v{value}"


def structs(cls: type[Struct], version: int, *, unknown_tags: bool = False) -> st.SearchStrategy[Any]:
    """Instances that `version` can carry; `unknown_tags` adds tagged fields of a future Kafka.

    The strategies are kept: six tests of each message use them, and Hypothesis checks each new one.
    """
    asked = (cls, version, unknown_tags)
    if asked not in _KEPT:
        _KEPT[asked] = _made(cls, version, unknown_tags)
    return _KEPT[asked]


def _made(cls: type[Struct], version: int, unknown_tags: bool) -> st.SearchStrategy[Any]:
    arguments = {
        name: _values(name, spec, version, unknown_tags) for name, spec, _ in fields_of(cls) if spec.present(version)
    }
    if unknown_tags:
        arguments["unknown_tags"] = st.dictionaries(st.integers(100, 1 << 31), st.binary(max_size=5), max_size=2)
    return st.builds(cls, **arguments)


def _values(name: str, spec: FieldSpec, version: int, unknown_tags: bool) -> st.SearchStrategy[Any]:
    values: st.SearchStrategy[Any]
    if spec.struct is not None:
        values = structs(spec.struct, version, unknown_tags=unknown_tags)
    elif name.endswith("error_code"):
        values = _ERROR_CODES
    elif name.endswith("timestamp") or name == "log_append_time_ms":
        values = _TIMES
    elif name.endswith("_ms"):
        values = _DURATIONS
    else:
        values = _SCALARS[spec.kind]
    if spec.repeated:
        values = st.lists(values, max_size=3)
    return st.none() | values if spec.nullable(version) else values
