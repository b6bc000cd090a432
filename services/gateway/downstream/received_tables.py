"""The tables that a gateway reads from its router, one at a time, in steps between which clients are served."""

import asyncio

from mesh.routing import RoutingTable
from mesh.routing.errors import WrongBaseError
from mesh.routing.table_reader import TableReader
from mesh.rpc import discovery, routing
from mesh.steps import done_between
from services.gateway import metrics


class ReceivedTables:
    """See above."""

    def __init__(self) -> None:
        self._reader = TableReader()
        self._one_at_a_time = asyncio.Lock()
        self._is_at_odds = False
        """Whether a delta of the last watch did not fit: the next watch takes whole tables."""

    async def begin(self, table: RoutingTable) -> bytes | None:
        """A watch begins while this table runs: its digest. None: the watch takes no deltas."""
        is_at_odds, self._is_at_odds = self._is_at_odds, False
        async with self._one_at_a_time:
            self._reader.forget()
            if is_at_odds:
                return None
            return await done_between(self._reader.begin(table)) if table.revision else b""

    async def read(self, message: routing.RoutingTable | routing.TableDelta) -> RoutingTable:
        """The table; InvalidRuleError if it can't be understood, WrongBaseError if the delta does not fit."""
        async with self._one_at_a_time:
            if isinstance(message, routing.RoutingTable):
                return await done_between(self._reader.whole(message))
            try:
                return await done_between(self._reader.after(message))
            except WrongBaseError:
                self._is_at_odds = True
                metrics.deltas_refused.inc()
                raise

    async def part(self, message: routing.RoutingTable) -> None:
        """Some of the whole table that the next order has."""
        async with self._one_at_a_time:
            await done_between(self._reader.part(message))

    async def encoded(self, table: RoutingTable) -> list[bytes]:
        """The table as a routing.RoutingTable, in pieces."""
        async with self._one_at_a_time:
            return await done_between(self._reader.encoded(table))


def table_of(order: discovery.WatchResponse) -> routing.RoutingTable | routing.TableDelta:
    """The table of an order that has one, or the delta in its place."""
    match order.WhichOneof("kind"):
        case "apply":
            return order.apply
        case "apply_delta":
            return order.apply_delta
        case "hold":
            return order.hold.delta if order.hold.HasField("delta") else order.hold.table
        case _:
            return order.canary.delta if order.canary.HasField("delta") else order.canary.table
