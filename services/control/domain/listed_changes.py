"""Changes of a policy that is a list of items, each with an id: rules about records, tenants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from mesh.topics import is_topic_name
from services.control.domain.errors import InvalidField

MOST_AT_ONCE: Final = 100
"""Changes of one call."""
ID: Final = re.compile(r"[a-z0-9-]{1,63}")

Change = TypeVar("Change")
Item = TypeVar("Item")


class OfTopics(Protocol):
    """A rule about the topics of one name or prefix."""

    @property
    def name(self) -> str: ...

    @property
    def is_prefix(self) -> bool: ...


def check_count(changes: Sequence[object], most: int) -> None:
    """InvalidField if a call has no change, or too many."""
    if not changes:
        raise InvalidField("changes", "is empty: name one at least")
    if len(changes) > most:
        raise InvalidField("changes", f"has {len(changes)} items, and {most} are possible: make several calls")


def asked_once(
    wanted: Sequence[Change],
    checked: Callable[[Change, str], Change],
    key: Callable[[Change], bytes],
    id_field: str,
) -> Iterator[tuple[bytes, Change]]:
    """The checked changes by key. InvalidField if two changes are about one item."""
    check_count(wanted, MOST_AT_ONCE)
    asked: set[bytes] = set()
    for index, each in enumerate(wanted):
        change = checked(each, f"changes[{index}]")
        if key(change) in asked:
            raise InvalidField(
                f"changes[{index}].{id_field}", f"{getattr(each, id_field)!r} has an earlier change: say it once"
            )
        asked.add(key(change))
        yield key(change), change


def check_id(change: Any, item_field: str, id_field: str, field: str) -> None:
    """InvalidField if the id is none, or is not that of the change's item."""
    said = getattr(change, id_field)
    if not ID.fullmatch(said):
        raise InvalidField(f"{field}.{id_field}", f"{said[:63]!r} is no id: 1 to 63 characters of [a-z0-9-]")
    inner = getattr(getattr(change, item_field), id_field)
    if change.HasField(item_field) and inner != said:
        raise InvalidField(f"{field}.{item_field}.{id_field}", f"is {inner!r}, and the change is of {said!r}")


def check_topics(rule: OfTopics, field: str) -> None:
    """InvalidField if no topic can be meant."""
    if not (rule.is_prefix and not rule.name) and not is_topic_name(rule.name):
        name = "topic_prefix" if rule.is_prefix else "topic"
        raise InvalidField(f"{field}.{name}", f"{rule.name[:249]!r} is no name of topics")


def after(
    known: Mapping[bytes, Item], asked: Mapping[bytes, Change], item: Callable[[Change], Item | None]
) -> tuple[list[Change], dict[bytes, Item]]:
    """The changes that change anything, and the items after them. `item`: None if the change removes the item."""
    new = [each for key, each in asked.items() if known.get(key) != item(each)]
    kept = {key: each for key, each in known.items() if key not in asked}
    kept.update((key, found) for key, each in asked.items() if (found := item(each)) is not None)
    return new, kept
