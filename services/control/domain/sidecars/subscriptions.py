"""Subscriptions of sidecars that operators declare: the state that each selected sidecar is to have.

A sidecar that comes later gets them too. Each name is one subscription in the mesh, whatever sidecars run it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from google.protobuf.message import Message

from mesh.rpc import events, subscriptions
from mesh.subscriptions import NAME, SubscriptionError, of_spec
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.sidecars.instances import MAX_TOPICS, NUL

SUBSCRIPTIONS: Final = "subscriptions"
"""The collection, in resource names. The decisions about a subscription are in the stream subscriptions/{name}."""
MOST: Final = 1_000
MOST_OF_SIDECAR: Final = 100
"""Each is a Kafka client with a thread in the sidecar, and all of them are in one answer of control."""
MOST_SELECTORS: Final = 20
MOST_BYTES: Final = 16 * 1024
"""The size of one specification."""
EVERY: Final = "*"
"""The end of a selector that stands for all names with its beginning."""
_NAME: Final = re.compile(NAME)
_SELECTOR: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}\*?|\*")

Declared = Mapping[str, subscriptions.DeclaredSubscription]
"""Name -> the subscription."""


def stream_of(name: str) -> str:
    return f"{SUBSCRIPTIONS}/{name}"


def declare(known: Declared, wanted: subscriptions.DeclaredSubscription) -> events.SubscriptionDeclared | None:
    """The event of a subscription that is new, or replaces the one of its name; None if it is there like this."""
    asked = _decided(wanted)
    asked.sidecars[:] = sorted(set(wanted.sidecars))
    _check(asked)
    before = known.get(asked.name)
    if before is None and len(known) >= MOST:
        raise NotAllowed("TOO_MANY_SUBSCRIPTIONS", SUBSCRIPTIONS, f"{MOST} are declared, and no more are possible")
    if before is not None and _decided(before) == asked:
        return None
    _check_room({**known, asked.name: asked}, asked)
    return events.SubscriptionDeclared(subscription=asked)


def withdraw(known: Declared, name: str) -> events.SubscriptionWithdrawn:
    """The event that withdraws a subscription."""
    if name not in known:
        declared = ", ".join(sorted(known)[:MOST_SELECTORS]) or "none"
        text = f"control has declared no subscription {name!r} (declared: {declared})"
        raise Unknown(stream_of(name), f"{text}; those of settings and backends are theirs")
    return events.SubscriptionWithdrawn(name=name)


def bring_back(present: Declared, earlier: Declared) -> list[Message]:
    """The events that make earlier subscriptions those in force."""
    payloads: list[Message] = [events.SubscriptionWithdrawn(name=name) for name in sorted(present.keys() - earlier)]
    for name in sorted(earlier):
        asked = _decided(earlier[name])
        if name not in present or _decided(present[name]) != asked:
            payloads.append(events.SubscriptionDeclared(subscription=asked))
    return payloads


def fold_subscriptions(known: Declared, event: events.Event) -> Declared:
    """The subscriptions after an event: the very same value if the event does not change them."""
    match event.WhichOneof("payload"):
        case "subscription_declared":
            new = _decided(event.subscription_declared.subscription)
            new.revision, new.actor, new.reason = event.position, event.actor, event.reason
            new.time.CopyFrom(event.time)
            return {**known, new.name: new}
        case "subscription_withdrawn":
            return {name: each for name, each in known.items() if name != event.subscription_withdrawn.name}
        case _:
            return known


def of_sidecar(known: Declared, sidecar: str) -> list[subscriptions.DeclaredSubscription]:
    """The subscriptions that a sidecar has to run, by name."""
    return [known[name] for name in sorted(known) if selects(known[name], sidecar)]


def selects(subscription: subscriptions.DeclaredSubscription, sidecar: str) -> bool:
    """Whether a sidecar of this name has to run the subscription."""
    return any(_matches(each, sidecar) for each in subscription.sidecars)


def _matches(selector: str, sidecar: str) -> bool:
    """Whether a selector stands for a name, or for all that another selector stands for."""
    if selector.endswith(EVERY):
        return sidecar.startswith(selector.removesuffix(EVERY))
    return selector == sidecar


def _check(wanted: subscriptions.DeclaredSubscription) -> None:
    where = "subscription"
    if not _NAME.fullmatch(wanted.name):
        text = f"{wanted.name[:100]!r} is no name: 1 to 40 of a-z, A-Z, 0-9, '.', '_' and '-', no '.' first"
        raise InvalidField(f"{where}.name", text)
    if not 1 <= len(wanted.sidecars) <= MOST_SELECTORS:
        text = f"needs 1 to {MOST_SELECTORS} names of sidecars, got {len(wanted.sidecars)}; shop-* is all from shop- on"
        raise InvalidField(f"{where}.sidecars", text)
    for each in wanted.sidecars:
        if not _SELECTOR.fullmatch(each):
            text = f"{each[:100]!r} is neither a sidecar's name nor the beginning of names with '*' behind"
            raise InvalidField(f"{where}.sidecars", text)
    if wanted.spec.group_instance_id and (len(wanted.sidecars) > 1 or wanted.sidecars[0].endswith(EVERY)):
        text = "is one member of the group: name one sidecar, or leave it out"
        raise InvalidField(f"{where}.spec.group_instance_id", text)
    size = wanted.spec.ByteSize()
    if size > MOST_BYTES:
        raise InvalidField(f"{where}.spec", f"has {size} bytes, and {MOST_BYTES} are possible")
    if len(wanted.spec.topics) > MAX_TOPICS:
        raise InvalidField(f"{where}.spec.topics", f"{len(wanted.spec.topics)} are more than {MAX_TOPICS}")
    if NUL.encode() in wanted.spec.SerializeToString() and _has_zero_byte(wanted.spec):
        raise InvalidField(f"{where}.spec", "has a text with a zero byte, which PostgreSQL does not take")
    try:
        of_spec(wanted.name, wanted.spec)
    except SubscriptionError as error:
        raise InvalidField(f"{where}.spec", str(error)) from None


def _has_zero_byte(message: Message) -> bool:
    for _, value in message.ListFields():
        values = [value] if isinstance(value, str | int | Message) else list(value)
        if any(_has_zero_byte(each) if isinstance(each, Message) else NUL in str(each) for each in values):
            return True
    return False


def _check_room(known: Declared, wanted: subscriptions.DeclaredSubscription) -> None:
    """Refuses a subscription with which a sidecar could have too many."""
    if len(known) <= MOST_OF_SIDECAR:
        return
    for name in _names_to_try(known.values(), wanted):
        number = sum(selects(each, name) for each in known.values())
        if number > MOST_OF_SIDECAR:
            text = f"a sidecar {name!r} would have {number} subscriptions, and {MOST_OF_SIDECAR} are possible"
            raise NotAllowed("TOO_MANY_SUBSCRIPTIONS", stream_of(wanted.name), text)


def _names_to_try(
    known: Iterable[subscriptions.DeclaredSubscription], wanted: subscriptions.DeclaredSubscription
) -> Collection[str]:
    """Names that stand for all sidecars of the subscription: no other name has more subscriptions."""
    named = {each.removesuffix(EVERY) for one in known for each in one.sidecars}
    return {name for name in named if selects(wanted, name)}


def _decided(subscription: subscriptions.DeclaredSubscription) -> subscriptions.DeclaredSubscription:
    """The part of a subscription that an operator decides."""
    return subscriptions.DeclaredSubscription(
        name=subscription.name, sidecars=subscription.sidecars, spec=subscription.spec
    )
