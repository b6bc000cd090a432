"""One listener as control decides it, for all gateways that have it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesh.connection_security import Mechanism


class Security(Enum):
    """Kafka's `security.protocol`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in (Security.SSL, Security.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (Security.SASL_PLAINTEXT, Security.SASL_SSL)


class Certificates(Enum):
    """Whether clients show certificates: Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


MECHANISMS: Final = (Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256, Mechanism.OAUTHBEARER, Mechanism.PLAIN)
USUAL_MECHANISMS: Final = f"{Mechanism.SCRAM_SHA_512.value} {Mechanism.SCRAM_SHA_256.value}"


@dataclass(frozen=True, slots=True)
class DecidedListener:
    """See above."""

    name: str
    security: Security | None = None
    """None: no gateway opens the listener."""
    mechanisms: tuple[str, ...] = ()
    certificates: Certificates = Certificates.NONE
    mapping_rules: str = ""
    """Empty: those of the gateway's settings."""
    port: int = 0
    """The port at gateways whose settings do not have the listener; 0: these do not open it."""
    advertised: str = ""
    """`HOST:PORT`, with `{host}` for the host of the gateway; empty: as the settings say, or `{host}` and `port`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """All decided listeners."""

    listeners: tuple[DecidedListener, ...] = ()
    revision: int = 0
