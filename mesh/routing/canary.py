"""The clients that use a pending table before all others do: a canary, as data planes and routers see it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from mesh.rpc import events

ALL = 1000
"""Connections in a thousand."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Gateways that try a table (empty: all of them), and how many of their connections in a thousand."""

    members: frozenset[str] = frozenset()
    permille: int = ALL

    def concerns(self, member: str) -> bool:
        """Whether the gateway of this name takes part."""
        return not self.members or member in self.members

    @staticmethod
    def of(canary: events.Canary) -> Canary:
        members = frozenset(name.removeprefix("members/") for name in canary.members)
        return Canary(members, canary.permille or ALL)


def takes_part(who: str, permille: int) -> bool:
    """Whether the clients that call themselves `who` are among so many in a thousand: the same ones on every gateway
    and after every restart.
    """
    return crc32(who.encode()) % ALL < permille
