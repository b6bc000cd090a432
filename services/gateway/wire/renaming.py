"""Other names for topics, groups and transactional ids in a message: a copy with every name replaced.

The fields are those that Kafka's specifications mark as names (`Named`), and resources (settings, access rights) whose
type says what they are.
"""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Final, TypeVar

from services.gateway.wire.schema import Named, Struct, Type, fields_of

M = TypeVar("M", bound=Struct)

Rename = Callable[[str], str | None]
"""A name to another, or None where the thing shall not be seen."""
Renames = Mapping[Named, Rename]
"""The kinds of things that have other names. All others keep theirs."""

RESOURCES: Final[Mapping[int, Named]] = {
    2: Named.TOPIC,
    3: Named.GROUP,
    5: Named.TRANSACTIONAL_ID,
    32: Named.GROUP,
}
"""`ResourceType` of access rights, and `ConfigResource.Type`; no number means two things."""
LITERAL: Final = 3
"""`PatternType` of access rights: the name stands for itself."""
ANY_NAME: Final = "*"
_RESOURCE_NAMES: Final = ("resource_name", "resource_name_filter")
_RESOURCE_TYPES: Final = ("resource_type", "resource_type_filter")
_PATTERN_TYPES: Final = ("pattern_type", "resource_pattern_type", "pattern_type_filter")


def renamed(message: M, renames: Renames) -> M:
    """The message with other names; itself where nothing changes. Parts of lists whose thing is None are left out."""
    found = _renamed(message, renames)
    return message if found is None else found


def _renamed(part: M, renames: Renames) -> M | None:
    """None: what this part is about shall not be seen."""
    plan = _plan(type(part))
    if not plan:
        return part
    changed: dict[str, object] = {}
    for name, is_list, kind in plan:
        value = getattr(part, name)
        if not value:
            continue
        if kind is None and is_list:
            parts = [_renamed(each, renames) for each in value]
            if any(one is not other for one, other in zip(parts, value, strict=True)):
                changed[name] = [each for each in parts if each is not None]
        elif kind is None and isinstance(value, Struct):
            found = _renamed(value, renames)
            if found is not value:
                changed[name] = found
        else:
            rename = renames.get(_resource(part, value) if kind is None else kind)  # type: ignore[arg-type]
            if rename is None:
                continue
            if is_list:
                names = [rename(each) for each in value]
                if names != value:
                    changed[name] = [each for each in names if each is not None]
                continue
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


def _resource(part: Struct, name: str) -> Named | None:
    """The kind of thing that a resource is; None if the name is that of no single one."""
    kinds = [getattr(part, field) for field in _RESOURCE_TYPES if hasattr(part, field)]
    patterns = [getattr(part, field) for field in _PATTERN_TYPES if hasattr(part, field)]
    if patterns not in ([], [LITERAL]) or name == ANY_NAME or len(kinds) != 1:
        return None
    return RESOURCES.get(kinds[0])


def names_any(cls: type[Struct], kinds: frozenset[Named]) -> bool:
    """Whether messages of this class can name things of these kinds at all."""
    return bool(_kinds_of(cls) & kinds)


def _kinds_of(cls: type[Struct]) -> frozenset[Named]:
    known = _kinds.get(cls)
    if known is None:
        found: set[Named] = set()
        for name, spec, _ in fields_of(cls):
            if spec.names is not None:
                found.add(spec.names)
            elif spec.kind is Type.STRING and name in _RESOURCE_NAMES:
                found.update(RESOURCES.values())
            elif spec.struct is not None and spec.struct is not cls:
                found |= _kinds_of(spec.struct)
        known = _kinds[cls] = frozenset(found)
    return known


Plan = tuple[tuple[str, bool, Named | None], ...]
"""(field, is it a list, its kind) of those that names stand in; without a kind, the field is a part with fields of its
own, or a resource."""
_kinds: dict[type, frozenset[Named]] = {}
_plans: dict[type, Plan] = {}


def _plan(cls: type[Struct]) -> Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = tuple(
            (name, spec.repeated, spec.names)
            for name, spec, _ in fields_of(cls)
            if spec.names is not None
            or (spec.kind is Type.STRING and name in _RESOURCE_NAMES)
            or (spec.struct is not None and spec.struct is not cls and _kinds_of(spec.struct))
        )
    return plan
