"""What a JSON body may look like, as tables; and the check of a body against one.

Names may have aliases, null counts as absent, and an unknown member is refused with its pointer: a misspelt
`keyFormat` must not silently become the default. The sentences are those of the original's validator.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.topics import is_topic_name
from services.sidecar.faults import invalid
from services.sidecar.formats import Format
from services.sidecar.json_text import type_name

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

Check = Callable[[Any, str], Any]
"""Takes a value and its pointer, gives what the service works with, or raises Fault."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object."""

    name: str
    check: Check
    aliases: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """An object with known members. Calling it gives the members that are there, by their first names."""

    members: tuple[Member, ...]
    _known: Mapping[str, Member] = field(init=False)

    def __post_init__(self) -> None:
        known = {name: member for member in self.members for name in (member.name, *member.aliases)}
        object.__setattr__(self, "_known", known)

    def __call__(self, value: object, pointer: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise invalid(pointer, f"{type_name(value)} found, object expected")
        found: dict[str, Any] = {}
        for name, given in value.items():
            member = self._known.get(name)
            if member is None:
                known = ", ".join(one.name for one in self.members)
                raise invalid(f"{pointer}/{_escaped(name)}", f"unknown member (known: {known})")
            if given is not None:
                found.setdefault(member.name, member.check(given, f"{pointer}/{name}"))
        for member in self.members:
            if member.required and member.name not in found:
                raise invalid(pointer, f"required property '{member.name}' not found")
        return found


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def any_value(value: Any, pointer: str) -> Any:
    """Whatever it is: its format decides."""
    return value


def text(value: Any, pointer: str) -> str:
    if not isinstance(value, str):
        raise invalid(pointer, f"{type_name(value)} found, string expected")
    return value


def plain_text(value: Any, pointer: str) -> str:
    """Text without NUL, where the client library below would end it."""
    given = text(value, pointer)
    if "\0" in given:
        raise invalid(pointer, "must not contain the character NUL")
    return given


def name(value: Any, pointer: str) -> str:
    """A name that becomes one segment of a path."""
    given = plain_text(value, pointer)
    if not given or len(given) > 249 or "/" in given:
        raise invalid(pointer, "expected 1 to 249 characters without '/'")
    return given


def topic(value: Any, pointer: str) -> str:
    """A topic's name. The client library would take one that begins with '^' for a pattern."""
    given = text(value, pointer)
    if not is_topic_name(given):
        raise invalid(
            pointer, f"{given[:249]!r} is not a topic name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'"
        )
    return given


def integer(minimum: int, maximum: int = MAX_INT32) -> Check:
    """A whole number within bounds; 5.0 is one too."""

    def check(value: Any, pointer: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise invalid(pointer, f"{type_name(value)} found, integer expected")
        if value < minimum:
            raise invalid(pointer, f"must have a minimum value of {minimum}")
        if value > maximum:
            raise invalid(pointer, f"must have a maximum value of {maximum}")
        return value

    return check


def boolean(value: Any, pointer: str) -> bool:
    """true, false, or the words for them: the contract has `autoCommitEnable` as a string."""
    match value:
        case bool():
            return value
        case "true" | "false":
            return bool(value == "true")
        case _:
            raise invalid(pointer, f"{type_name(value)} found, boolean expected")


def format_(value: Any, pointer: str) -> Format:
    """A format by number, or by name in any case."""
    try:
        return Format.parse(value)
    except ValueError as error:
        raise invalid(pointer, str(error)) from None


def array(check: Check) -> Check:
    """A list of things of one shape."""

    def check_all(value: Any, pointer: str) -> list[Any]:
        if not isinstance(value, list):
            raise invalid(pointer, f"{type_name(value)} found, array expected")
        return [check(given, f"{pointer}/{index}") for index, given in enumerate(value)]

    return check_all


def text_map(value: Any, pointer: str) -> dict[str, str]:
    """An object whose values are strings."""
    if not isinstance(value, dict):
        raise invalid(pointer, f"{type_name(value)} found, object expected")
    return {plain_text(key, pointer): text(given, f"{pointer}/{_escaped(key)}") for key, given in value.items()}


def record_headers(value: Any, pointer: str) -> list[dict[str, Any]] | dict[str, str]:
    """A map of texts; or a list of {key, value}, the value in base64, where duplicates, bytes or nulls matter."""
    headers: list[dict[str, Any]] | dict[str, str] = (
        array(RECORD_HEADER)(value, pointer) if isinstance(value, list) else text_map(value, pointer)
    )
    return headers


def base64_text(value: Any, pointer: str) -> str:
    given = text(value, pointer)
    try:
        base64.b64decode(given, validate=True)
    except ValueError as error:
        raise invalid(pointer, f"not base64: {error}") from None
    return given


def _side(side: str) -> tuple[Member, ...]:
    return (
        Member(f"{side}Format", format_, (f"{side}_format",)),
        Member(f"{side}Schema", text, (f"{side}_schema",)),
        Member(f"{side}SchemaId", integer(0), (f"{side}_schema_id",)),
        Member(f"{side}SchemaVersion", integer(0), (f"{side}_schema_version",)),
        Member(f"{side}SchemaSubject", text, (f"{side}_schema_subject",)),
    )


RECORD_HEADER = Shape((Member("key", plain_text, required=True), Member("value", base64_text)))
RECORD = Shape(
    (
        Member("key", any_value),
        Member("value", any_value),
        Member("partition", integer(0)),
        Member("timestamp", integer(0, MAX_INT64)),
        Member("correlationId", text, ("correlation_id",)),
        Member("traceabilityId", text, ("traceability_id",)),
        Member("headers", record_headers),
    )
)
PRODUCE = Shape((*_side("key"), *_side("value"), Member("records", array(RECORD), required=True)))

CREATE_INSTANCE = Shape(
    (
        Member("id", name),
        Member("name", name),
        Member("format", format_),
        Member("keyFormat", format_, ("key_format",)),
        Member("valueFormat", format_, ("value_format",)),
        Member("autoOffsetReset", text, ("auto.offset.reset",)),
        Member("autoCommitEnable", boolean, ("auto.commit.enable",)),
        Member("responseMinBytes", integer(-1, 10_000_000), ("fetch.min.bytes",)),
        Member("requestWaitMs", integer(0), ("consumer.request.timeout.ms",)),
    )
)

SUBSCRIPTION = Shape((Member("topics", array(topic)), Member("topic_pattern", plain_text, ("topicPattern",))))

PARTITION = Shape((Member("topic", topic, required=True), Member("partition", integer(0), required=True)))
PARTITIONS = Shape((Member("partitions", array(PARTITION), ("offsets",), required=True),))

OFFSET = Shape(
    (
        *PARTITION.members,
        Member("offset", integer(0, MAX_INT64 - 1), required=True),
        Member("metadata", plain_text),
    )
)
OFFSETS = Shape((Member("offsets", array(OFFSET)),))
