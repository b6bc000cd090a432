"""Memory for large answers that can't go on while they come: all of them together have a bound.

Theory of operation
1. What an answer needs counts from its first bytes on, and until nobody holds it any more: it may be put together with
   others, or be left behind for the client's next poll. What a client does not take of its answers counts, too.
2. A Fetch that finds no room is not read on until its turn has come. Its broker's connection is its client's own, and
   a poll that waits for others as well is over with its wait, so nobody waits for another in a circle. Other answers
   are counted, and come.
3. One that needs more than there is comes when nothing else is held.
4. The less room there is, the less do polls ask for, whose answers would need it; the smallest ones need none. So who
   holds a lot, and takes or leaves nothing, makes others slower, and stops nobody. What was left behind for a client's
   next poll is dropped when others need the memory.
"""

import asyncio
from itertools import count
from typing import Final, Protocol
from weakref import WeakValueDictionary

from services.gateway import metrics

POLL_BYTES: Final = 4 << 20
"""Most that a poll asks for at once, if its answer has to be gathered; as long as half of the room is free ..."""
SCARCE_POLL_BYTES: Final = 512 << 10
"""... as long as an eighth is, and nobody waits ..."""
LEAST_POLL_BYTES: Final = 48 << 10
"""... and then: small enough to come in one piece, where no batch is larger (`frame_stream.GATHER_FROM_BYTES`)."""


class Source(Protocol):
    """The connection on which an answer comes."""

    def hold_back(self, held_back: bool) -> None: ...


class Spare(Protocol):
    """Who holds what can be asked for again."""

    def drop(self) -> None: ...


class AnswerRoom:
    """Of the process."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[AnswerMemory, int] = {}
        """In their turn, with what they need."""
        self._spare: WeakValueDictionary[int, Spare] = WeakValueDictionary()
        """The oldest ones first."""
        self._numbers = count()
        metrics.gathered_bytes.set_function(lambda: self.held_bytes)

    @property
    def poll_bytes(self) -> int:
        """Most that a poll should ask for whose answer has to be gathered."""
        free = self.limit_bytes - self.held_bytes
        if self._waiting or free * 8 < self.limit_bytes:
            return LEAST_POLL_BYTES
        return POLL_BYTES if free * 2 >= self.limit_bytes else SCARCE_POLL_BYTES

    def take(self, size: int) -> None:
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """This may happen anywhere; who has waited goes on from the event loop."""
        self.held_bytes -= size
        if self._waiting:
            next(iter(self._waiting)).loop.call_soon(self._let_on)

    def finds_none(self, size: int) -> bool:
        """Whether so many bytes have to wait."""
        return bool(self._waiting) or not self._fits(size)

    def wait(self, who: "AnswerMemory", size: int) -> None:
        self._waiting[who] = size

    def leave(self, who: "AnswerMemory") -> None:
        if self._waiting.pop(who, None) is not None:
            self._let_on()

    def can_be_spared(self, spare: Spare) -> None:
        """As long as it lives."""
        self._spare[next(self._numbers)] = spare
        if self._waiting:
            self._let_on()

    def _fits(self, size: int) -> bool:
        """After what can be spared has been dropped, if need be."""
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
    """Bytes that count until nobody has this any more."""

    __slots__ = ("_room", "size")

    def __init__(self, room: AnswerRoom) -> None:
        self._room = room
        self.size = 0

    def take(self, size: int) -> None:
        """So many more."""
        self.size += size
        self._room.take(size)

    def can_be_spared(self, spare: Spare) -> None:
        """By who holds it."""
        self._room.can_be_spared(spare)

    def __del__(self) -> None:
        self._room.give_back(self.size)


class SharedBytes(bytearray):
    """Memory that counts as long as anybody holds it, or looks into it."""

    __slots__ = ("share",)

    def __init__(self, size: int, share: Share) -> None:
        super().__init__(size)
        self.share = share


class AnswerMemory:
    """Of one connection to a broker, which gathers one answer at a time."""

    __slots__ = ("_expected", "_room", "_share", "_source", "loop")

    def __init__(self, source: Source, room: AnswerRoom) -> None:
        self.loop = asyncio.get_running_loop()
        self._source = source
        self._room = room
        self._share: Share | None = None
        """Of the answer for which there is no room yet ..."""
        self._expected = 0
        """... and what it needs."""

    @property
    def is_wanting(self) -> bool:
        """The answer that has begun to come is not read on, for there is no room for all of it."""
        return self._share is not None

    def of(self, expected: int, filled: int, *, may_wait: bool) -> SharedBytes:
        """For an answer of so many bytes, of which so many have come: for all of it, or, until there is room, for more
        than these. A broker is trusted with what it says its answer has: to grow with it would be to copy it again."""
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
        """There is room."""
        share, self._share = self._share, None
        if share is not None:
            share.take(self._expected)
            self._source.hold_back(False)

    def end(self) -> None:
        """The connection is gone."""
        self._share = None
        self._room.leave(self)
