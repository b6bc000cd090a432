"""How connections to an upstream cluster are secured: the cluster's librdkafka properties as a value, without I/O.

Control refuses a cluster whose security the gateways can't serve, by the same check that gateways make when a table
arrives: what is registered is served. Names, defaults and precedence are librdkafka's. A property that asks for more
than is served (a CRL, say) is refused rather than passed over: no connection is less secure than it was told to be.
Values may be references (`secret_references`); they are resolved when a connection is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

CONNECTION_PREFIXES = ("broker.address.", "https.", "reconnect.backoff.", "sasl.", "socket.", "ssl.")
CONNECTION_NAMES = frozenset(
    {
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "security.protocol",
    }
)
SERVED_TLS_NAMES = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
MECHANISM_NAMES = ("sasl.mechanisms", "sasl.mechanism")
"""One property with two names."""
SYSTEM_CA = "probe"
"""librdkafka's word for: look where this system keeps its authorities. So does an empty value."""
T = TypeVar("T")

BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Mechanism(Enum):
    """SASL mechanisms that are served."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class Protocol(Enum):
    """Values of `security.protocol`."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def encrypts(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class UnservedSecurityError(ValueError):
    """A cluster asks for what the mesh does not serve; `name` is the property. Says no value that may be secret."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Tls:
    """What TLS needs; empty where not set. A PEM text counts before a file of the same kind."""

    ca_location: str = ""
    ca_pem: str = field(default="", repr=False)
    certificate_location: str = ""
    certificate_pem: str = field(default="", repr=False)
    key_location: str = ""
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    verifies_broker: bool = True
    identifies_host: bool = True

    @property
    def has_certificate(self) -> bool:
        return bool(self.certificate_location or self.certificate_pem)


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: Mechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """`None` stands for: without."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ConnectionSecurity:
        """From a cluster's `connection_properties`; UnservedSecurityError names the property that can't be served."""
        said = {name: value for name, value in properties.items() if value.strip()}
        protocol = _choice(said, "security.protocol", {p.value: p for p in Protocol}, Protocol.PLAINTEXT)
        return cls(_tls(said) if protocol.encrypts else None, _sasl(said) if protocol.authenticates else None)


def shapes_connections(name: str) -> bool:
    """Whether the property counts for every connection to the cluster, the gateway's included."""
    return name in CONNECTION_NAMES or name.startswith(CONNECTION_PREFIXES)


def connection_properties(producer: Mapping[str, str], consumer: Mapping[str, str]) -> dict[str, str]:
    """Security and connection properties of a cluster, from both configurations; the producer's wins where they
    differ.
    """
    return {name: value for name, value in {**consumer, **producer}.items() if shapes_connections(name)}


def _choice(said: Mapping[str, str], name: str, choices: Mapping[str, T], default: T) -> T:
    value = said.get(name)
    if value is None:
        return default
    if value.lower() not in choices:
        raise UnservedSecurityError(name, f"{value!r} is not served (served: {', '.join(choices)})")
    return choices[value.lower()]


def _tls(said: Mapping[str, str]) -> Tls:
    for name in sorted(said):
        if name.startswith("ssl.") and name not in SERVED_TLS_NAMES:
            raise UnservedSecurityError(name, f"is not served (served: {', '.join(sorted(SERVED_TLS_NAMES))})")
    tls = Tls(
        ca_location=said.get("ssl.ca.location", ""),
        ca_pem=said.get("ssl.ca.pem", ""),
        certificate_location=said.get("ssl.certificate.location", ""),
        certificate_pem=said.get("ssl.certificate.pem", ""),
        key_location=said.get("ssl.key.location", ""),
        key_pem=said.get("ssl.key.pem", ""),
        key_password=said.get("ssl.key.password", ""),
        verifies_broker=_choice(said, "enable.ssl.certificate.verification", BOOLEANS, True),
        identifies_host=_choice(said, "ssl.endpoint.identification.algorithm", {"https": True, "none": False}, True),
    )
    for name in ("ssl.key.location", "ssl.key.pem"):
        if name in said and not tls.has_certificate:
            reason = "a key without its certificate; set ssl.certificate.location or ssl.certificate.pem too"
            raise UnservedSecurityError(name, reason)
    return tls


def _sasl(said: Mapping[str, str]) -> Sasl:
    served = {mechanism.value: mechanism for mechanism in Mechanism}
    names = [name for name in MECHANISM_NAMES if name in said]
    if not names:
        reason = f"is not set, and its default, GSSAPI, is not served (served: {', '.join(served)})"
        raise UnservedSecurityError(MECHANISM_NAMES[0], reason)
    for name in names:
        if said[name] not in served:
            raise UnservedSecurityError(name, f"{said[name]!r} is not served (served: {', '.join(served)})")
    if len({said[name] for name in names}) > 1:
        reason = f"{said[names[0]]!r}, but {names[1]}, another name of the same property, says {said[names[1]]!r}"
        raise UnservedSecurityError(names[0], reason)
    for name in ("sasl.username", "sasl.password"):
        if name not in said:
            raise UnservedSecurityError(name, f"must be set for {said[names[0]]}")
    return Sasl(served[said[names[0]]], said["sasl.username"], said["sasl.password"])
