"""The tally of a combination (`mesh.traffic.counting`), to which each forwarded request adds without a look-up."""

from array import array

from mesh.traffic.counting import FOLDED_VALUES, NewSketch, Sketch
from services.gateway.wire.scanner.walks import octets

_FOLDED_BYTES = 4 * FOLDED_VALUES


class Tally:
    """Plain numbers, and latencies as they came."""

    __slots__ = ("_new_sketch", "_recent", "_sketch", "bytes", "calls", "ended", "errors", "records")

    def __init__(self, new_sketch: NewSketch) -> None:
        self._new_sketch = new_sketch
        self.records = 0
        self.bytes = 0
        self.calls = 0
        self.errors = 0
        self.ended = False
        self._recent = bytearray()
        """Latencies that are not in the sketch yet, 4 bytes each."""
        self._sketch: Sketch | None = None

    def add(self, records: int, size: int, errors: int) -> None:
        self.records += records
        self.bytes += size
        self.calls += 1
        self.errors += errors

    def took(self, milliseconds: float) -> None:
        octets.add_float32(self._recent, milliseconds)
        if len(self._recent) >= _FOLDED_BYTES:
            self._fold()

    def latencies(self) -> bytes:
        if self._recent:
            self._fold()
        return b"" if self._sketch is None else self._sketch.written()

    @property
    def recent(self) -> "array[float]":
        found = array("f")
        found.frombytes(self._recent)
        return found

    def _fold(self) -> None:
        if self._sketch is None:
            self._sketch = self._new_sketch()
        self._sketch.fold(self.recent)
        self._recent = bytearray()
