"""The policies of a table to protobuf and back, whole and as differences.

A difference names places, since the order of a policy's items counts. `PolicyDelta` in routing.proto says its form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from mesh.routing.errors import InvalidRuleError, TooManyChangesError, WrongBaseError
from mesh.routing.policies import KINDS, Policies, PolicyKind
from mesh.rpc import acls, routing

MOST_CHANGES: Final = 1_000
"""Entries of a section that go or come. Above this number, a whole table is read sooner than a delta."""


def policies_from_proto(message: routing.RoutingTable) -> Policies:
    """The policies of a table; InvalidRuleError when one of them can't be understood."""
    found: dict[str, Any] = {kind.field: _known(kind, policy) for kind, policy in _of(message)}
    return Policies(**found)


def _of(message: routing.RoutingTable) -> Iterator[tuple[PolicyKind[Any], Any]]:
    present = {field.name for field, _ in message.ListFields()}
    return ((kind, getattr(message, kind.field)) for kind in KINDS if kind.field in present)


def _known(kind: PolicyKind[Any], message: Message) -> Message:
    """A copy for a table. Without a field or number that is not known here, an item would be another one."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    knows_all = copy.ByteSize() == message.ByteSize() and all(map(kind.is_known, getattr(copy, kind.items)))
    if not knows_all or (isinstance(copy, acls.AclPolicy) and copy.mode not in acls.AclMode.values()):
        raise InvalidRuleError(
            kind.field, "says something that is not known here: a newer release of the mesh says it; run that one here"
        )
    return copy


def policies_difference(before: Policies, after: Policies) -> list[routing.PolicyDelta]:
    """A delta for each policy that differs; TooManyChangesError where the whole table is better."""
    return [
        _difference(kind, getattr(before, kind.field), getattr(after, kind.field))
        for kind in KINDS
        if getattr(before, kind.field) is not getattr(after, kind.field)
    ]


def policies_after(before: Policies, deltas: Iterable[routing.PolicyDelta]) -> Policies:
    """The policies that follow; WrongBaseError when an item goes that is not here, InvalidRuleError as above."""
    changed: dict[str, Any] = {}
    for delta in deltas:
        for kind, policy in _of(delta.policy):
            come = [*getattr(policy, kind.items)]
            items = _items_after(getattr(kind.of(before), kind.items), delta.gone, come, delta.places)
            after = _without_items(kind, policy)
            getattr(after, kind.items).extend(items)
            changed[kind.field] = _known(kind, after)
    return before._replace(**changed)


class _Edit(NamedTuple):
    gone: list[int]
    places: list[int]


def _difference(kind: PolicyKind[Any], before: Message | None, after: Message | None) -> routing.PolicyDelta:
    if after is None:
        raise TooManyChangesError  # a policy never goes; tables of two logs are not compared
    items = getattr(after, kind.items)
    edit = _edit(() if before is None else getattr(before, kind.items), items)
    delta = routing.PolicyDelta(gone=edit.gone, places=edit.places)
    policy = getattr(delta.policy, kind.field)
    policy.CopyFrom(_without_items(kind, after))
    getattr(policy, kind.items).extend(items[place] for place in edit.places)
    return delta


def _without_items(kind: PolicyKind[Any], policy: Message) -> Any:
    rest = type(policy)()
    rest.CopyFrom(policy)
    rest.ClearField(kind.items)
    return rest


def _edit(before: Iterable[Message], after: Iterable[Message]) -> _Edit:
    """The places that go and come, so that the list of those before becomes the one after."""
    old, new = ([entry.SerializeToString(deterministic=True) for entry in entries] for entries in (before, after))
    stay_old, stay_new = set(new), set(old)
    if [entry for entry in old if entry in stay_old] != [entry for entry in new if entry in stay_new]:
        raise TooManyChangesError  # entries that stay have changed places
    edit = _Edit(
        [place for place, entry in enumerate(old) if entry not in stay_old],
        [place for place, entry in enumerate(new) if entry not in stay_new],
    )
    if len(edit.gone) + len(edit.places) > MOST_CHANGES:
        raise TooManyChangesError
    return edit


def _items_after(
    before: Sequence[Message], gone: Sequence[int], come: Sequence[Message], places: Sequence[int]
) -> Sequence[Message]:
    if len(come) != len(places) or (gone and not 0 <= min(gone) <= max(gone) < len(before)):
        raise WrongBaseError("an entry of a policy goes, and is not here")
    going = set(gone)
    entries = [entry for place, entry in enumerate(before) if place not in going]
    for place, entry in zip(places, come, strict=True):
        entries.insert(place, entry)
    return entries
