"""The identity that a client has proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER: Final = "User"
"""The type of all principals that clients prove, as on brokers."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client, and the way in which the client has proved it."""

    name: str
    proof: str = ""
    """The mechanism, or `certificate`; empty: nothing was asked."""
    groups: tuple[str, ...] = ()
    """Only a token names groups."""
    scopes: tuple[str, ...] = ()
    """Only a token has scopes."""
    kind: str = USER

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def group_principals(self) -> tuple[str, ...]:
        """The groups, as ACLs and rules name them."""
        return tuple(f"Group:{group}" for group in self.groups)


NOBODY: Final = Principal("ANONYMOUS")
"""A client that was asked for no proof."""
CERTIFICATE: Final = "certificate"
