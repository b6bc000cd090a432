"""Other names for the topics in a message: a copy with every name replaced, wherever it stands.

The fields are those that Kafka's specifications mark as names of topics, and resources (settings, access rights) whose
type says that they are one.
"""

from collections.abc import Callable
from copy import copy
from typing import Final, TypeVar

from services.gateway.wire.schema import Struct, Type, fields_of

M = TypeVar("M", bound=Struct)

Rename = Callable[[str], str | None]
"""A name to another, or None where the topic shall not be seen."""

TOPIC_RESOURCE: Final = 2
"""`ResourceType` of access rights and `ConfigResource.Type` have this in common."""
LITERAL: Final = 3
"""`PatternType` of access rights: the name stands for itself."""
ANY_TOPIC: Final = "*"
_RESOURCE_NAMES: Final = ("resource_name", "resource_name_filter")
_RESOURCE_TYPES: Final = ("resource_type", "resource_type_filter")
_PATTERN_TYPES: Final = ("pattern_type", "resource_pattern_type", "pattern_type_filter")


def renamed(message: M, rename: Rename) -> M:
    """The message with other names; itself where nothing changes. Parts of lists whose topic is None are left out."""
    found = _renamed(message, rename)
    return message if found is None else found


def _renamed(part: M, rename: Rename) -> M | None:
    """None: the topic that this part is about shall not be seen."""
    plan = _plan(type(part))
    if not plan:
        return part
    changed: dict[str, object] = {}
    for name, is_list, is_part in plan:
        value = getattr(part, name)
        if not value:
            continue
        if is_part and is_list:
            parts = [_renamed(each, rename) for each in value]
            if any(one is not other for one, other in zip(parts, value, strict=True)):
                changed[name] = [each for each in parts if each is not None]
        elif is_part:
            found = _renamed(value, rename)
            if found is not None and found is not value:
                changed[name] = found
        elif is_list:
            names = [rename(each) for each in value]
            if names != value:
                changed[name] = [each for each in names if each is not None]
        elif name not in _RESOURCE_NAMES or _is_topic(part, value):
            other = rename(value)
            if other is None:
                return None
            if other != value:
                changed[name] = other
    if not changed:
        return part
    made = copy(part)
    for name, new in changed.items():
        setattr(made, name, new)
    return made


def _is_topic(part: Struct, name: str) -> bool:
    kinds = [getattr(part, field) for field in _RESOURCE_TYPES if hasattr(part, field)]
    patterns = [getattr(part, field) for field in _PATTERN_TYPES if hasattr(part, field)]
    return kinds == [TOPIC_RESOURCE] and patterns in ([], [LITERAL]) and name != ANY_TOPIC


def names_topics(cls: type[Struct]) -> bool:
    """Whether messages of this class can name topics at all."""
    return bool(_plan(cls))


Plan = tuple[tuple[str, bool, bool], ...]
"""(field, is it a list, is it a part with fields of its own) of those that names of topics stand in."""
_plans: dict[type, Plan] = {}


def _plan(cls: type[Struct]) -> Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = tuple(
            (name, spec.repeated, spec.struct is not None)
            for name, spec, _ in fields_of(cls)
            if spec.names_topic
            or (spec.kind is Type.STRING and name in _RESOURCE_NAMES)
            or (spec.struct is not None and spec.struct is not cls and _plan(spec.struct))
        )
    return plan
