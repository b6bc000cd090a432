"""Counts the open connections of each address and of each principal, and says which one is too many. No I/O.

Each process counts its own connections. Kafka bounds those of an address, too (`max.connections.per.ip`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

UNBOUNDED = 0


@dataclass(slots=True)
class _Counted:
    address: str
    principal: str | None = None
    """None: the client has proved no name."""


class Crowds:
    """The connections of one process, by their numbers."""

    def __init__(self, most_of_address: int = UNBOUNDED, most_of_principal: int = UNBOUNDED) -> None:
        self._most_of_address = most_of_address
        self._most_of_principal = most_of_principal
        self._counted: dict[int, _Counted] = {}
        self._addresses: Counter[str] = Counter()
        self._principals: Counter[str] = Counter()

    def came(self, number: int, address: str) -> str | None:
        """Counts a new connection. Returns why it must end; None: it may go on."""
        self._counted[number] = _Counted(address)
        self._addresses[address] += 1
        return self._excess(self._most_of_address, self._addresses[address], f"address {address}")

    def proved(self, number: int, principal: str) -> str | None:
        """The client of the connection has proved who it is, perhaps once more; returns as `came`."""
        counted = self._counted.get(number)
        if counted is None or counted.principal is not None:
            return None
        counted.principal = principal
        self._principals[principal] += 1
        return self._excess(self._most_of_principal, self._principals[principal], principal)

    def left(self, number: int) -> None:
        """The connection is gone."""
        counted = self._counted.pop(number, None)
        if counted is not None:
            _take(self._addresses, counted.address)
            if counted.principal is not None:
                _take(self._principals, counted.principal)

    @staticmethod
    def _excess(most: int, found: int, whose: str) -> str | None:
        if most == UNBOUNDED or found <= most:
            return None
        return f"{whose} has {most} connections to this process, and no more are possible"


def _take(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
