"""The listeners that a gateway should have, by its settings and by control, and the way there. No I/O.

Theory of operation
1. The settings of a gateway have its listeners at the start. Control's decision about a name takes the place of the
   settings in all but the address to listen on: host and ports belong to the gateway.
2. A listener that only control has listens on the host of the gateway's first listener, at the port of the decision.
3. A listener that this gateway can't have as it was decided is not open at all (`Wanted.faults`): with its earlier
   policy it could let in clients that it must not let in any more.
4. `fate` says what becomes of a connection whose listener has changed. A connection whose proof the listener would
   not accept any more ends at once. A connection that would be another one today (another principal, another port)
   ends within the drain time. All others stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from mesh.connection_security import Mechanism
from mesh.listeners import Certificates, DecidedListener, Policy, name_rules
from mesh.settings import refuse_open_door
from services.gateway.authentication.principal import CERTIFICATE
from services.gateway.listeners import Listener, advertised_of
from services.gateway.requests.nodes import NodePorts

PASSWORDS: Final = frozenset({Mechanism.PLAIN.value, Mechanism.SCRAM_SHA_256.value, Mechanism.SCRAM_SHA_512.value})
"""The mechanisms whose clients are users of this gateway."""
READABLE: Final = (Mechanism.PLAIN.value, Mechanism.OAUTHBEARER.value)
"""Mechanisms whose secret anyone on the way could read without TLS."""
HOST_PLACEHOLDER: Final = "{host}"
"""The place in a decided address for the host that the gateway's first listener advertises."""


@dataclass(frozen=True, slots=True)
class Means:
    """The means that a gateway's settings give to listeners."""

    has_certificate: bool = False
    has_client_ca: bool = False
    has_users: bool = False
    has_issuers: bool = False
    allow_insecure: bool = False

    def check(self, listener: Listener) -> None:
        """ValueError: what this listener lacks here, or why it would be an open door."""
        passwords = sorted(PASSWORDS & set(listener.mechanisms))
        if passwords and not self.has_users:
            raise ValueError(f"users_file: {' and '.join(passwords)} need users; set users_file, or users_from_control")
        if Mechanism.OAUTHBEARER.value in listener.mechanisms and not self.has_issuers:
            raise ValueError("token_issuers: OAUTHBEARER needs issuers whose tokens count")
        if listener.tls and not self.has_certificate:
            raise ValueError("listen has a listener by TLS: set tls_certificate and tls_key, files in PEM")
        if listener.certificates is not Certificates.NONE and not self.has_client_ca:
            raise ValueError(f"tls_client_ca: {listener} asks for certificates; set the authorities that sign them")
        readable = [each for each in listener.mechanisms if each in READABLE]
        if readable and not listener.tls and not self.allow_insecure:
            raise ValueError(
                f"listen {listener}: everyone on the way could read what clients send with {' and '.join(readable)}; "
                "use SASL_SSL, or set allow_insecure (KAFKA_MESH_GATEWAY_ALLOW_INSECURE=1) where nobody else is"
            )
        harm = "everyone who reaches this address could read and write all topics"
        place = f"{listener.host}:{listener.port}"
        refuse_open_door("listen", place, "gateway", safe=self.allow_insecure or listener.asks_who, harm=harm)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The listeners that a gateway should have."""

    listeners: Mapping[str, Listener]
    """By name."""
    faulty: Mapping[str, Listener]
    """Those that were decided, and that this gateway can't have."""
    faults: Mapping[str, str]
    """Why not, by name."""
    decided: frozenset[str]
    """The names that control has decided about."""


def wanted(own: Sequence[Listener], policy: Policy, means: Means) -> Wanted:
    """The listeners of the settings, with control's decisions laid over them."""
    found = {each.name: each for each in own}
    faulty: dict[str, Listener] = {}
    faults: dict[str, str] = {}
    for each in policy.listeners:
        before = found.pop(each.name, None)
        if each.security is None or (before is None and not each.port):
            continue
        listener, fault = _decided(each, before, own[0], means, found.values())
        if fault:
            faulty[each.name], faults[each.name] = listener, fault
        else:
            found[each.name] = listener
    names = frozenset(each.name for each in policy.listeners)
    return Wanted(found, faulty, faults, names)


def _decided(
    of: DecidedListener, before: Listener | None, first: Listener, means: Means, others: Iterable[Listener]
) -> tuple[Listener, str]:
    """The listener, and why this gateway can't have it; empty: it can."""
    assert of.security is not None
    base = before or replace(
        first, port=of.port, advertised=replace(first.advertised, port=of.port, node_ports=NodePorts())
    )
    listener = replace(
        base,
        name=of.name,
        security=of.security,
        mechanisms=of.mechanisms,
        certificates=of.certificates,
    )
    try:
        listener = replace(listener, rules=name_rules(of.mapping_rules) if of.mapping_rules else first.rules)
        told = of.advertised or f"{listener.advertised.host}:{listener.advertised.port}"
        there = told.replace(HOST_PLACEHOLDER, first.advertised.host)
        listener = replace(listener, advertised=advertised_of(there, of.security, listener.advertised.node_ports))
        means.check(listener)
        taken = next((each for each in others if _meet(each, listener)), None)
        if taken is not None:
            raise ValueError(f"port {listener.port} belongs to listener {taken.name} of this gateway's settings")
    except ValueError as error:
        return listener, str(error)
    return listener, ""


def _meet(one: Listener, other: Listener) -> bool:
    """Whether two listeners have a port in common."""
    ports = {port for port, _ in one.places if port}
    return one.host == other.host and not ports.isdisjoint(port for port, _ in other.places)


class Fate(Enum):
    """The fate of a connection whose listener has changed."""

    STAY = auto()
    DRAIN = auto()
    """It ends within the drain time."""
    CLOSE = auto()
    """It ends at once."""


def fate(before: Listener, after: Listener | None, proof: str) -> Fate:
    """`proof`: how the client has proved who it is; empty: not at all. `after`: None if the listener is closed."""
    if before.security.sasl and not proof:  # its log-in goes on, by a policy that is over
        return Fate.CLOSE
    if after is None:
        return Fate.DRAIN
    if not _accepts(before, after, proof):
        return Fate.CLOSE
    same_door = before.security is after.security and is_same_door(before, after)
    same_client = proof != CERTIFICATE or (before.rules == after.rules and after.certificates is not Certificates.NONE)
    return Fate.STAY if same_door and same_client else Fate.DRAIN


def _accepts(before: Listener, after: Listener, proof: str) -> bool:
    """Whether the listener as it is now would have let the client in by the same proof."""
    if after.tls and not before.tls:
        return False
    is_asked_anew = after.certificates is Certificates.REQUIRED and before.certificates is not Certificates.REQUIRED
    if is_asked_anew and proof != CERTIFICATE:
        return False
    if after.security.sasl:
        return proof in after.mechanisms
    return True


def is_same_door(before: Listener, after: Listener) -> bool:
    """Whether the sockets of a listener serve it as it is now."""
    return before.places_there == after.places_there
