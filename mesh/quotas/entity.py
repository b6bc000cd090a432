"""A quota as a value: the clients that it is set for, what it bounds, and the bound."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Default(Enum):
    """The name of a part that stands for each one without a quota under its own name."""

    DEFAULT = "<default>"
    """As Kafka's tools show it."""


GROUP: Final = "Group:"
"""The beginning of the name of a user that stands for a group of tokens."""
PREFIXED: Final = "Prefixed:"
"""The beginning of the name of a user that stands for all users whose names begin with the rest."""
DEFAULT: Final = Default.DEFAULT
Name = str | Default
"""The name of a part of an entity."""


class Key(Enum):
    """The use that a quota bounds, in Kafka's words."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONNECTION_CREATION_RATE = "connection_creation_rate"

    @property
    def unit(self) -> str:
        return _UNITS[self]

    @property
    def is_about_addresses(self) -> bool:
        """Whether such a quota is set for IP addresses; all others are set for users and client ids."""
        return self is Key.CONNECTION_CREATION_RATE


_UNITS: Final = {
    Key.PRODUCER_BYTE_RATE: "bytes/s",
    Key.CONSUMER_BYTE_RATE: "bytes/s",
    Key.REQUEST_PERCENTAGE: "% of a thread",
    Key.CONNECTION_CREATION_RATE: "connections/s",
}


@dataclass(frozen=True, slots=True)
class Entity:
    """The clients that a quota is set for: a user, a client.id or both, or an IP address. None: no condition."""

    user: Name | None = None
    """Without "User:", as Kafka names users of quotas; "Group:NAME" for a group of tokens, "Prefixed:TEXT" for those
    whose names begin so."""
    client_id: Name | None = None
    ip: Name | None = None

    def __str__(self) -> str:
        parts = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return ", ".join(f"{kind} {_shown(name)}" for kind, name in parts if name is not None)


def _shown(name: Name) -> str:
    return name.value if isinstance(name, Default) else repr(name)


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota."""

    entity: Entity
    key: Key
    value: float

    def __str__(self) -> str:
        return f"{self.key.value} of {self.entity} is {self.value:.15g} {self.key.unit}"
