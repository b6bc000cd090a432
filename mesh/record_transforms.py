"""The changes that a rule may make to a record, and the paths that name a JSON field.

A path is names joined by dots, as in `customer.card.number`. `[*]` goes through all elements of a list, and `['a.b']`
is a name with characters that mean something here: `orders[*].lines[*].price`, `['card.number']`, `[*].email`.
"""

from __future__ import annotations

import re

from mesh.rpc import record_rules

MESH_HEADERS = "mesh-"
"""How the names of headers begin that the mesh writes itself: where a record has been, why it is a dead letter."""
LONGEST_HEADER_NAME = 1000
LONGEST_HEADER_VALUE = 4096
"""Characters; it is written with each record."""
LONGEST_PATH = 1000
DEEPEST_PATH = 32
"""Steps, as expressions have."""
_STEP = re.compile(r"\['([^']+)'\]|(\[\*\])|(?:^|(?!^)\.)([^.\[\]'\"\s]+)")

ELEMENTS = None
"""A step of a path: into each element of a list."""
JsonPath = tuple[str | None, ...]
"""Names of fields, and ELEMENTS."""


class InvalidTransformError(ValueError):
    """A change of records that can't be: the field it is said in, what is wrong, and what would be right."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        """Within the transform, as requests name it; empty for the transform itself."""
        self.reason = reason


def check_transform(
    transform: record_rules.Transform,
    value_format: record_rules.ValueFormat.ValueType = record_rules.VALUE_FORMAT_UNSPECIFIED,
) -> None:
    """Refuses a change that no record of this value format can have: InvalidTransformError says why."""
    match transform.WhichOneof("kind"):
        case "set_header":
            _check_header("set_header.name", transform.set_header.name)
            length = len(transform.set_header.value)
            if length > LONGEST_HEADER_VALUE:
                reason = f"has {length} characters; at most {LONGEST_HEADER_VALUE} are served, each record carries them"
                raise InvalidTransformError("set_header.value", reason)
        case "drop_header":
            _check_header("drop_header", transform.drop_header)
        case "redact_json_field":
            json_path(transform.redact_json_field)
            if value_format in (record_rules.VALUE_FORMAT_BYTES, record_rules.VALUE_FORMAT_AVRO):
                name = record_rules.ValueFormat.Name(value_format).removeprefix("VALUE_FORMAT_")
                reason = f"only JSON values can be redacted, and the rule says that values are {name}"
                raise InvalidTransformError("redact_json_field", reason)
        case _:
            raise InvalidTransformError("", "say which: one of set_header, drop_header and redact_json_field")


def json_path(text: str) -> JsonPath:
    """The steps of a path. InvalidTransformError says what is wrong with it."""
    steps: list[str | None] = []
    at = 0
    while at < len(text) <= LONGEST_PATH:
        found = _STEP.match(text, at)
        if found is None:
            raise _invalid_path(text, f"at character {at + 1}: no name, [*] or ['name'] begins there")
        quoted, elements, plain = found.groups()
        steps.append(ELEMENTS if elements else quoted or plain)
        at = found.end()
    if len(text) > LONGEST_PATH or len(steps) > DEEPEST_PATH:
        raise _invalid_path(text, f"is longer than {LONGEST_PATH} characters or {DEEPEST_PATH} steps")
    if not steps:
        raise _invalid_path(text, "is empty")
    return tuple(steps)


def _invalid_path(text: str, reason: str) -> InvalidTransformError:
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    return InvalidTransformError(
        "redact_json_field", f"{shown} {reason}; expected a path like customer.card.number or orders[*].price"
    )


def _check_header(field: str, name: str) -> None:
    if not 1 <= len(name) <= LONGEST_HEADER_NAME:
        raise InvalidTransformError(field, f"needs 1 to {LONGEST_HEADER_NAME} characters, got {len(name)}")
    if name.lower().startswith(MESH_HEADERS):
        reason = f"{name!r} is the mesh's own, and says where a record has been; take a name without {MESH_HEADERS!r}"
        raise InvalidTransformError(field, reason)
