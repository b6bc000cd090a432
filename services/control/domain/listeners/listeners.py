"""Decisions about listeners of gateways: setting them, closing them, and taking decisions back.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules. If a
gateway can't have a listener as it was decided, the gateway does not open the listener, and reports why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mesh.listeners import MECHANISMS, USUAL_MECHANISMS, Certificates, DecidedListener, name_rules
from mesh.listeners.codec import is_known, listener_from_proto, listener_to_proto
from mesh.routing.listed_policy import LISTENER_SET, listener_key
from mesh.rpc import events, listeners
from mesh.settings import host_port
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.listed_changes import after, asked_once, check_id

LISTENERS: Final = "listeners"
"""The stream of all decisions about listeners."""
MOST_LISTENERS: Final = 20
"""Each gateway opens all of them."""
MOST_RULES_CHARACTERS: Final = 2_000
HIGHEST_PORT: Final = 65_535
_PLACEHOLDERS: Final = ("{host}", "{node}")


def change_listeners(
    policy: listeners.ListenerPolicy, wanted: Sequence[listeners.ListenerChange]
) -> events.ListenersChanged | None:
    """The event that sets listeners, or takes decisions about them back; None if all of it is so already."""
    known = {listener_key(each): each for each in policy.listeners}
    new, kept = after(known, dict(asked_once(wanted, checked, listener_key, "name")), LISTENER_SET)
    if len(kept) > MOST_LISTENERS:
        raise NotAllowed(
            "TOO_MANY_LISTENERS",
            LISTENERS,
            f"the mesh would have decisions about {len(kept)} listeners, and {MOST_LISTENERS} are possible",
        )
    ports: dict[int, str] = {}
    for each in kept.values():
        other = ports.setdefault(each.port, each.name) if each.port else each.name
        if other != each.name:
            raise NotAllowed(
                "LISTENER_PORT_TAKEN",
                LISTENERS,
                f"listener {each.name!r} can't have port {each.port}, which listener {other!r} has: choose another one",
            )
    return events.ListenersChanged(changes=new) if new else None


def checked(wanted: listeners.ListenerChange, field: str) -> listeners.ListenerChange:
    """The change as it is compared. InvalidField if no gateway could carry it out."""
    check_id(wanted, "listener", "name", field)
    if not wanted.HasField("listener"):
        return listeners.ListenerChange(name=wanted.name)
    there = f"{field}.listener"
    if not is_known(wanted.listener):
        raise InvalidField(f"{there}.security", "is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, unless `closed` is set")
    listener = listener_from_proto(wanted.listener)
    if listener.security is None and listener != DecidedListener(listener.name):
        raise InvalidField(f"{there}.closed", "excludes all else: nobody comes in there")
    if listener.security is not None:
        listener = _with_mechanisms(listener, there)
        _check(listener, there)
    return listeners.ListenerChange(name=wanted.name, listener=listener_to_proto(listener))


def _with_mechanisms(listener: DecidedListener, field: str) -> DecidedListener:
    """The listener with the usual mechanisms, if it names none."""
    assert listener.security is not None
    served = [each.value for each in MECHANISMS]
    named = listener.mechanisms
    if not listener.security.sasl and named:
        raise InvalidField(f"{field}.sasl_mechanisms", f"are for SASL: nobody logs in at {listener.security.value}")
    if len(set(named)) < len(named) or not set(named) <= set(served):
        raise InvalidField(f"{field}.sasl_mechanisms", f"are some of {', '.join(served)}, each once")
    if not listener.security.sasl:
        return listener
    mechanisms = tuple(each for each in served if each in named) if named else tuple(USUAL_MECHANISMS.split())
    return replace(listener, mechanisms=mechanisms)


def _check(listener: DecidedListener, field: str) -> None:
    assert listener.security is not None
    if listener.certificates is not Certificates.NONE and not listener.security.tls:
        raise InvalidField(f"{field}.tls_client_auth", f"is for TLS: {listener.security.value} has no certificates")
    if len(listener.mapping_rules) > MOST_RULES_CHARACTERS:
        raise InvalidField(f"{field}.principal_mapping_rules", f"are longer than {MOST_RULES_CHARACTERS} characters")
    try:
        name_rules(listener.mapping_rules)
    except ValueError as error:
        raise InvalidField(f"{field}.principal_mapping_rules", f"are not Kafka's: {error}") from None
    if not 0 <= listener.port <= HIGHEST_PORT:
        raise InvalidField(f"{field}.port", f"is 1 to {HIGHEST_PORT}, or 0 for that of the gateways' settings")
    if not listener.advertised:
        return
    try:
        host, _ = host_port(listener.advertised)
    except ValueError:
        host = ""
    for placeholder in _PLACEHOLDERS:
        host = host.replace(placeholder, "x", 1)
    if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]{1,255}", host):
        raise InvalidField(
            f"{field}.advertised",
            f"{listener.advertised[:100]!r} is no HOST:PORT; {{host}} and {{node}} may stand in HOST, each once",
        )
    if "{node}" in listener.advertised and not listener.security.tls:
        raise InvalidField(f"{field}.advertised", "has a host for each node, which only TLS can tell apart")
