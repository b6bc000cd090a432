"""The ends of logs at which consumers wait, and the one poll that watches all of them on a broker. No I/O.

Theory of operation
1. A consumer that has read everything asks again and again, and brokers answer each time that there is nothing. Once
   brokers have brought it nothing for `QUIET_AFTER_S`, its Fetch *waits* at the gateway, if all its partitions stand
   at watched ends. It is not sent. At the end of its wait the client gets the answer without records that its session
   or its last marks call for.
2. A `LogEndWatch` asks a broker for all these partitions in one long poll after another, as any consumer does
   (`BrokerFetches`). An end counts only if the watch has had an answer about it, with the marks that the client has.
   Then whatever happens to the partition comes with the next answer of the watch: it is asked for from the same offset.
3. The watch decides nothing about clients. With records, an error, a hint or other marks the end goes, and each Fetch
   that waits there is sent to its brokers as it is, with the rest of its wait. So minimum, isolation, errors and
   throttling are the broker's own.
4. If the watch fails, or its answer is late, all its ends go, and all that wait are sent.
5. Every `RENEWED_AFTER_S` or so a consumer asks its brokers itself, whatever the watch says.
6. A broker reads all partitions of a watch before each answer. So a watch has a bound, and a consumer whose records
   come every second does not wait here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.gateway.requests.records.broker_fetches import BrokerFetches, BrokerRequest, Limits, NamedSlot, Terms
from services.gateway.requests.records.fetch_sessions import Marks, Position
from services.gateway.wire.scanner import FetchedPartition, FetchResponseScan

QUIET_AFTER_S: Final = 2.0
"""How long brokers bring a consumer nothing before its requests wait here."""
RENEWED_AFTER_S: Final = 15.0
"""How long a consumer waits here before it asks its brokers itself: from two thirds to four thirds of this."""
SHORTEST_WAIT_S: Final = 0.05
"""A Fetch with a shorter wait is sent: nothing would be saved."""
WATCH_MS: Final = 1_000
"""The wait of a watch: after so long it asks for new ends, too."""
ENDS_OF_A_WATCH: Final = 250
WATCHES_OF_A_BROKER: Final = 40
"""Each has a connection. Consumers of further partitions ask for themselves."""
UNUSED_S: Final = 20.0
"""An end at which nobody has stood for so long is watched no more. A watch without ends keeps its connection for so
long, too."""
_RECORD_BYTES: Final = 1
"""A broker sends a whole batch all the same, of one partition. The watch wants none."""
_LIMITS: Final = Limits(WATCH_MS, 1, _RECORD_BYTES, "")
_READ_UNCOMMITTED: Final = 0
_NOBODY: Final = -1


class LogEnd:
    """The end of one partition's log, and the requests that wait there."""

    __slots__ = ("log_start", "position", "used_at", "waiting")

    def __init__(self, offset: int, now: float) -> None:
        self.position = Position(offset, _RECORD_BYTES)
        self.log_start: int | None = None
        """The start of the log; None: the watch has had no answer about this end."""
        self.used_at = now
        self.waiting: dict[Any, None] = {}


class LogEndWatch:
    """One poll after another to one broker, for up to `ENDS_OF_A_WATCH` log ends.

    The caller sends what `ask` returns, and reports its result by `answered` or `lost`.
    """

    __slots__ = ("_empty_since", "_fetches", "broker", "ends", "goes_on")

    def __init__(self, broker: "BrokerLogEnds") -> None:
        self.broker = broker
        self.ends: dict[NamedSlot, LogEnd] = {}
        self._fetches = BrokerFetches(Terms(broker.version, _READ_UNCOMMITTED))
        self._empty_since = 0.0
        self.goes_on = False
        """Whether one request follows another. If not, there are no ends."""

    def ask(self, now: float) -> BrokerRequest | None:
        """The next request; None if there is no end to watch. Without ends for long, the watch has ended."""
        for slot in [slot for slot, each in self.ends.items() if not each.waiting and now - each.used_at > UNUSED_S]:
            self._drop(slot)
        if not self.ends:
            if self.goes_on:
                self.goes_on, self._empty_since = False, now
            if now - self._empty_since >= UNUSED_S and self in self.broker.watches:
                self.broker.watches.remove(self)
            return None
        self.goes_on = True
        if any(each.log_start is None and self._was_asked_for(slot, each) for slot, each in self.ends.items()):
            self._fetches.lost()  # a broker does not say again in a session what it has said: ask in full
        return self._fetches.ask({slot: each.position for slot, each in self.ends.items()}, _LIMITS)

    def answered(self, scan: FetchResponseScan) -> list[Any]:
        """The requests that wait no more."""
        asked = self._fetches.asked
        if not self._fetches.answered(scan):
            return []  # the session is gone: the next request asks for all again, from the same offsets
        if scan.error_code:
            return self.lost()
        woken: dict[Any, None] = {}
        for topic in scan.topics:
            for part in topic.partitions:
                slot = (topic.name, part.partition)
                end, before = self.ends.get(slot), asked.get(slot)
                if end is None or before is None or before.offset != end.position.offset:
                    continue  # the answer is about an earlier end
                if _has_news(end, part):
                    woken.update(self._drop(slot).waiting)
                else:
                    end.log_start = part.log_start_offset
        return list(woken)

    def lost(self) -> list[Any]:
        """The watch has ended. Returns the requests that wait no more."""
        woken: dict[Any, None] = {}
        for slot in list(self.ends):
            woken.update(self._drop(slot).waiting)
        if self in self.broker.watches:
            self.broker.watches.remove(self)
        return list(woken)

    def _was_asked_for(self, slot: NamedSlot, end: LogEnd) -> bool:
        before = self._fetches.asked.get(slot)
        return before is not None and before.offset == end.position.offset

    def _drop(self, slot: NamedSlot) -> LogEnd:
        del self.broker.ends[slot]
        return self.ends.pop(slot)


def _has_news(end: LogEnd, part: FetchedPartition) -> bool:
    return (
        part.error_code != 0
        or part.record_bytes > 0
        or part.hints
        or part.preferred_read_replica != _NOBODY
        or part.high_watermark != end.position.offset
        or (end.log_start is not None and part.log_start_offset != end.log_start)
    )


class BrokerLogEnds:
    """All watched log ends of one broker."""

    __slots__ = ("_begin", "ends", "version", "watches")

    def __init__(self, version: int, begin: Callable[[LogEndWatch], None]) -> None:
        """`version`: that of requests; `begin` sends the next request of a watch that had no ends."""
        self.version = version
        self.ends: dict[NamedSlot, LogEnd] = {}
        self.watches: list[LogEndWatch] = []
        self._begin = begin

    def standing(
        self, wanted: Mapping[NamedSlot, Position], marks: Mapping[NamedSlot, Marks], committed: bool, now: float
    ) -> list[LogEnd] | None:
        """The ends at which a Fetch stands that wants these partitions. None: it has to be sent.

        `marks`: the last ones that the broker sent for its client. Ends that are not watched yet will be.
        """
        found: list[LogEnd] | None = []
        for slot, position in wanted.items():
            known, offset = marks.get(slot), position.offset
            if known is None or known.high_watermark != offset or (committed and known.last_stable_offset != offset):
                return None
            end = self.ends.get(slot)
            if end is None or end.position.offset != offset:
                self._watch(slot, offset, now)
                if not self.watches:
                    return None  # the broker can't be watched
                found = None
                continue
            end.used_at = now
            if end.log_start is None or known.log_start_offset not in (end.log_start, _NOBODY):
                found = None
            elif found is not None:
                found.append(end)
        return found

    def _watch(self, slot: NamedSlot, offset: int, now: float) -> None:
        watch = self._watch_of(slot)
        if watch is None:
            return
        watch.ends[slot] = self.ends[slot] = LogEnd(offset, now)
        if watch not in self.watches:
            self.watches.append(watch)
        if not watch.goes_on:
            self._begin(watch)

    def _watch_of(self, slot: NamedSlot) -> LogEndWatch | None:
        """The watch that can take this end; None if none can."""
        before = self.ends.get(slot)
        if before is not None:  # others stand at another offset; those that wait there are about to hear of it
            return None if before.waiting else next(each for each in self.watches if slot in each.ends)
        for watch in self.watches:
            if len(watch.ends) < ENDS_OF_A_WATCH:
                return watch
        return LogEndWatch(self) if len(self.watches) < WATCHES_OF_A_BROKER else None
