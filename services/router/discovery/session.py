"""One open stream of a data plane: its state machine, and the bounded outbox between that and the network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import grpc

from mesh.rpc import acknowledgements, admin, discovery, quotas
from services.router import metrics
from services.router.discovery.member import Answered, Apply, Divide, Member, Message, News, Order, ProtocolError

MAX_OUTBOX = 64
"""Orders that may wait for a member that reads slowly. If several Apply follow each other, only the last matters."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the router ends a stream."""

    code: grpc.StatusCode
    label: str
    """For the metric."""
    reason: str
    """For the member, as a sentence."""


class Session:
    """Messages go in by `tell`, orders come out of `next_order`."""

    def __init__(self, identity: admin.Member, news: News | None) -> None:
        self.identity = identity
        self.clients = discovery.ClientReport()
        """The member's clients by its last report; never changed in place."""
        self.quota_parts: quotas.QuotaParts | None = None
        """The parts of quotas that its clients use, by its last report; never changed in place."""
        self.standby = acknowledgements.StandbyReport()
        """The clusters with a standby that it can't reach, by its last report; never changed in place."""
        self.ending: Ending | None = None
        self._member = Member(identity.name.removeprefix("members/"), news)
        self._outbox: deque[Order] = deque()
        self._wake = asyncio.Event()

    @property
    def member(self) -> Member:
        return self._member

    def tell(self, message: Message) -> None:
        """Gives `message` to the state machine. A message that breaks the protocol ends the stream."""
        if self.ending is not None:
            return
        before = self._member.standing
        try:
            orders = self._member.receive(message)
        except ProtocolError as error:
            self.end(Ending(grpc.StatusCode.FAILED_PRECONDITION, "protocol", str(error)))
            return
        if isinstance(message, Answered) and self._member.standing is not before:
            _observe(self._member)
        self._put(orders)

    def divide(self, parts: quotas.QuotaParts) -> None:
        """Tells the member its parts of quotas; the last ones count."""
        waiting = next((at for at, order in enumerate(self._outbox) if isinstance(order, Divide)), None)
        if waiting is not None:
            self._outbox[waiting] = Divide(parts)
        elif self.ending is None:
            self._put((Divide(parts),))
            self._wake.set()

    def end(self, ending: Ending) -> None:
        """Ends the stream; orders in the outbox are not sent any more. The first reason counts."""
        if self.ending is None:
            self.ending = ending
            self.drop_outbox()
            self._wake.set()

    def drop_outbox(self) -> None:
        metrics.outbox.dec(len(self._outbox))
        self._outbox.clear()

    async def next_order(self) -> Order | None:
        """The next order to send; None when the stream has ended."""
        while not self._outbox:
            if self.ending is not None:
                return None
            self._wake.clear()
            await self._wake.wait()
        metrics.outbox.dec()
        order = self._outbox.popleft()
        metrics.orders.labels(type(order).__name__.lower()).inc()
        return order

    def _put(self, orders: Iterable[Order]) -> None:
        for order in orders:
            if isinstance(order, Apply) and self._outbox and isinstance(self._outbox[-1], Apply):
                self._outbox[-1] = order
                continue
            if len(self._outbox) >= MAX_OUTBOX:
                text = f"{MAX_OUTBOX} orders wait because the member reads too slowly; it should connect again"
                self.end(Ending(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow", text))
                return
            self._outbox.append(order)
            metrics.outbox.inc()
        self._wake.set()


def _observe(member: Member) -> None:
    standing = member.standing
    if standing.answer is None:
        return
    if standing.reason:
        metrics.refusals.inc()
    if standing.lag_s is not None:
        metrics.push_latency.labels(standing.answer.value).observe(standing.lag_s)
