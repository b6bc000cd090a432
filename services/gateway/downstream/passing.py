"""A large answer on its way from a broker to a client while it still comes: none of it is kept.

Theory of operation
1. Only the answer that is the client's next one may pass (`Slots.answer_begun`); any other is gathered.
   Until its end nothing else is sent to the client, for answers leave in their order anyway.
2. If the client does not read the answer, the gateway stops reading from the broker (`BrokerConnection.hold_back`).
   Therefore the broker's connection has to belong to this client alone.
3. If the broker's connection ends in the middle, the gateway ends the client's connection: the client has half an
   answer.
"""

from collections.abc import Callable
from typing import Protocol

from services.gateway import metrics
from services.gateway.frame_stream import Passage
from services.gateway.wire.batches import Span
from services.gateway.wire.passing_records import PassingRecords
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner.fetch_beginning import FetchBeginning


class Passed:
    """An answer that has left while it came."""


class Passing(Protocol):
    """The request whose answer this is."""

    def passed_on(self) -> None:
        """All of the answer has been sent to the client. The client's connection needs the outcome (`Passed`)."""


class Source(Protocol):
    """The broker connection that the answer comes from."""

    def hold_back(self, held_back: bool) -> None: ...


class Outlet(Protocol):
    """The connection of the client."""

    @property
    def is_open(self) -> bool: ...

    def send(self, *pieces: Buffer) -> None: ...

    def abort(self, reason: str) -> None: ...


class PassingAnswer:
    """See above. The passage of one answer; `ended` is called when no more of it comes."""

    __slots__ = ("_ended", "_held_back", "_outlet", "_request", "_source")

    def __init__(self, outlet: Outlet, request: Passing, source: Source, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._outlet = outlet
        self._request = request
        self._source = source
        self._held_back = False

    def take(self, piece: memoryview, missing: int) -> None:
        if self._outlet.is_open:
            _bytes_out.total += len(piece)
            self._outlet.send(piece)
        if not missing:
            self.hold_back(False)
            self._ended()
            self._request.passed_on()

    def cut(self, reason: str) -> None:
        self._ended()
        self._outlet.abort(f"the broker left in the middle of an answer: {reason}")

    def hold_back(self, held_back: bool) -> None:
        """The client does not take what it is sent, or does again."""
        if held_back != self._held_back:
            self._held_back = held_back
            self._source.hold_back(held_back)


class Brought:
    """The content of an answer that passes while it arrives, which is counted."""

    __slots__ = ("_found", "_passage", "records")

    def __init__(self, passage: Passage, found: FetchBeginning) -> None:
        self._passage = passage
        self._found = found
        self.records = PassingRecords(found.record_bytes)

    @property
    def content(self) -> tuple[str, int, int, Span, int]:
        """As `traffic.calls.brought_by` shows other answers."""
        found = self._found
        return found.topic, found.partition, found.record_bytes, self.records.span, found.high_watermark

    def take(self, piece: memoryview, missing: int) -> None:
        self.records.come(piece)
        self._passage.take(piece, missing)

    def cut(self, reason: str) -> None:
        self._passage.cut(reason)


_bytes_out = metrics.client_bytes.labels("out")
