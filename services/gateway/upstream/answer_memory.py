"""Memory for large answers that can't go on while they come: all of them together have a bound.

Theory of operation
1. The memory of an answer counts from its first bytes on, until nobody holds the answer any more. The gateway may join
   the answer with others, or keep it for the client's next poll. Bytes that a client does not read count, too.
2. If the answer to a Fetch finds no room, the gateway does not read the rest until there is room. The broker's
   connection belongs to this client alone, and a poll that also waits for other brokers ends when its wait is over.
   So no circle of waits can arise. Other answers are counted, and always read.
3. An answer that needs more than the whole room is read when nothing else is held.
4. The less room there is, the fewer bytes polls ask for; answers to the smallest polls need no room. So a client that
   holds much memory makes others slower, but stops nobody. Answers kept for a client's next poll are dropped when
   others need the memory.
"""

import asyncio
from itertools import count
from typing import Final, Protocol
from weakref import WeakValueDictionary

from services.gateway import metrics

POLL_BYTES: Final = 4 << 20
"""Most bytes that a poll asks for if its answer has to be gathered, as long as half of the room is free ..."""
SCARCE_POLL_BYTES: Final = 512 << 10
"""... as long as an eighth is, and nobody waits ..."""
LEAST_POLL_BYTES: Final = 48 << 10
"""... and then: small enough to come in one piece, where no batch is larger (`frame_stream.GATHER_FROM_BYTES`)."""


class Source(Protocol):
    """The connection on which an answer comes."""

    def hold_back(self, held_back: bool) -> None: ...


class Spare(Protocol):
    """A holder of bytes that the gateway can request again."""

    def drop(self) -> None: ...


class AnswerRoom:
    """The room of the process for gathered answers."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[AnswerMemory, int] = {}
        """The answers that wait for room, in their order, with the bytes that they need."""
        self._spare: WeakValueDictionary[int, Spare] = WeakValueDictionary()
        """The oldest holders first."""
        self._numbers = count()
        metrics.gathered_bytes.set_function(lambda: self.held_bytes)

    @property
    def poll_bytes(self) -> int:
        """Most bytes that a poll should ask for if its answer has to be gathered."""
        free = self.limit_bytes - self.held_bytes
        if self._waiting or free * 8 < self.limit_bytes:
            return LEAST_POLL_BYTES
        return POLL_BYTES if free * 2 >= self.limit_bytes else SCARCE_POLL_BYTES

    def take(self, size: int) -> None:
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """May be called in any thread, which may collect garbage: answers that wait go on from the event loop."""
        self.held_bytes -= size
        if self._waiting:
            next(iter(self._waiting)).loop.call_soon_threadsafe(self._let_on)

    def finds_none(self, size: int) -> bool:
        """Whether `size` bytes have to wait for room."""
        return bool(self._waiting) or not self._fits(size)

    def wait(self, who: "AnswerMemory", size: int) -> None:
        self._waiting[who] = size

    def leave(self, who: "AnswerMemory") -> None:
        if self._waiting.pop(who, None) is not None:
            self._let_on()

    def can_be_spared(self, spare: Spare) -> None:
        """Note `spare`, as long as it lives."""
        self._spare[next(self._numbers)] = spare
        if self._waiting:
            self._let_on()

    def _fits(self, size: int) -> bool:
        """Whether `size` bytes fit. Drops answers that can be spared, if need be."""
        while self.held_bytes and self.held_bytes + size > self.limit_bytes:
            oldest = next(iter(self._spare), None)
            if oldest is None:
                return False
            spare = self._spare.pop(oldest, None)
            if spare is not None:
                spare.drop()
        return True

    def _let_on(self) -> None:
        waiting = self._waiting
        while waiting:
            who, size = next(iter(waiting.items()))
            if not self._fits(size):
                return
            del waiting[who]
            who.go_on()


class Share:
    """Bytes that count until nobody holds this share any more."""

    __slots__ = ("_room", "size")

    def __init__(self, room: AnswerRoom) -> None:
        self._room = room
        self.size = 0

    def take(self, size: int) -> None:
        """Count `size` more bytes."""
        self.size += size
        self._room.take(size)

    def can_be_spared(self, spare: Spare) -> None:
        """Let `spare`, which holds this share, drop it if need be."""
        self._room.can_be_spared(spare)

    def __del__(self) -> None:
        self._room.give_back(self.size)


class SharedBytes(bytearray):
    """Memory that counts as long as anybody holds it, or a view of it."""

    __slots__ = ("share",)

    def __init__(self, size: int, share: Share) -> None:
        super().__init__(size)
        self.share = share


class AnswerMemory:
    """The memory of one connection to a broker, which gathers one answer at a time."""

    __slots__ = ("_expected", "_room", "_share", "_source", "loop")

    def __init__(self, source: Source, room: AnswerRoom) -> None:
        self.loop = asyncio.get_running_loop()
        self._source = source
        self._room = room
        self._share: Share | None = None
        """The share of the answer for which there is no room yet ..."""
        self._expected = 0
        """... and the bytes that it needs."""

    @property
    def is_wanting(self) -> bool:
        """Whether the answer that has begun to come is not read on, for lack of room for all of it."""
        return self._share is not None

    def of(self, expected: int, filled: int, *, may_wait: bool) -> SharedBytes:
        """Memory for an answer of `expected` bytes, of which `filled` have come. Until there is room for all, the
        memory has twice `filled` at most. The gateway trusts the announced size: growing would mean more copies."""
        share = Share(self._room)
        if may_wait and self._room.finds_none(expected):
            self._share, self._expected = share, expected
            metrics.answers_waited.inc()
            self._source.hold_back(True)
            self._room.wait(self, expected)
            return SharedBytes(min(expected, 2 * filled), share)
        share.take(expected)
        return SharedBytes(expected, share)

    def go_on(self) -> None:
        """Read on: there is room."""
        share, self._share = self._share, None
        if share is not None:
            share.take(self._expected)
            self._source.hold_back(False)

    def end(self) -> None:
        """The connection is gone."""
        self._share = None
        self._room.leave(self)
