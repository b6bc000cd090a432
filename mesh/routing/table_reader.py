"""The tables of a stream as a data plane reads them: whole ones, and deltas that rest on the table before.

All methods work step by step, and each takes a millisecond at most between two steps. A step of one method must not
come between those of another.
"""

from __future__ import annotations

from collections.abc import Generator

from mesh.routing.codec import table_in_steps
from mesh.routing.delta import WrongBaseError, table_after
from mesh.routing.table import RoutingTable
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import routing


class TableReader:
    """See above."""

    def __init__(self) -> None:
        self._bytes = TableBytes()
        self._base: RoutingTable | None = None
        """The table on which the next delta rests; None: no delta can be read."""

    def begin(self, table: RoutingTable) -> Generator[None, None, bytes]:
        """A stream begins, and this table runs here. Returns its digest for the Hello."""
        self._base = table
        yield from self._bytes.in_steps(table)
        return self._bytes.digest(table)

    def whole(self, message: routing.RoutingTable) -> Generator[None, None, RoutingTable]:
        """The table; InvalidRuleError when it can't be understood, and then the next delta has no base."""
        self._base = None
        table = yield from table_in_steps(message, self._bytes.learn)
        yield from table.indexes.index_in_steps()
        self._base = table
        return table

    def after(self, delta: routing.TableDelta) -> Generator[None, None, RoutingTable]:
        """The table that follows from the one before.

        WrongBaseError when the delta rests on another table; InvalidRuleError as above.
        """
        base, self._base = self._base, None
        if base is None:
            raise WrongBaseError("no table has been read on which the delta could rest")
        yield from self._bytes.in_steps(base)
        if delta.base != self._bytes.digest(base):
            raise WrongBaseError(f"the delta rests on another table than that of revision {base.revision} here")
        table, come = yield from table_after(base, delta)
        for version, message in come:
            self._bytes.learn(version, message)
        yield from self._bytes.in_steps(table)
        if delta.digest != self._bytes.digest(table):
            raise WrongBaseError(f"the table of revision {delta.revision} came out otherwise than the router has it")
        self._base = table
        return table

    def encoded(self, table: RoutingTable) -> Generator[None, None, bytes]:
        """The table as a routing.RoutingTable."""
        yield from self._bytes.in_steps(table)
        return self._bytes.of(table)
