"""Counts records in batches that come piece by piece, as `batches.span_of` does in a whole."""

from services.gateway.wire.batches import HEADER_BYTES, MOST_COUNTED, Span, count_of_header, span_of_headers


class PassingRecords:
    """Counts from the first batch's first byte on; nothing of a piece is kept but the part of a header at its end."""

    __slots__ = ("_at", "_batches", "_first", "_header", "_is_whole", "_last", "_size", "_skip", "_stopped", "records")

    def __init__(self, size: int) -> None:
        """`size` is the size of all batches together, in bytes. Bytes behind them are ignored."""
        self.records = 0
        self._size = size
        self._at = 0
        """Bytes that have come."""
        self._skip = 0
        """Bytes still to come of the batch whose header was read last."""
        self._header = b""
        self._batches = 0
        self._first = self._last = b""
        """Headers of the first and the last batch that were counted."""
        self._is_whole = True
        self._stopped = False

    @property
    def span(self) -> Span:
        """The batches whose headers have come."""
        return span_of_headers(self.records, self._first, self._last, is_whole=self._is_whole)

    def come(self, piece: memoryview) -> None:
        at, end = 0, min(len(piece), self._size - self._at)
        self._at += end
        while not self._stopped:
            if self._skip >= end - at:
                self._skip -= end - at
                return
            at += self._skip
            self._skip = 0
            wanting = HEADER_BYTES - len(self._header)
            if end - at < wanting:
                self._header += bytes(piece[at:end])
                return
            self._read(self._header + bytes(piece[at : at + wanting]), end - at - wanting)
            at += wanting
            self._header = b""

    def _read(self, header: bytes, behind: int) -> None:
        left = self._size - self._at + behind + HEADER_BYTES
        found = count_of_header(header)
        if found is None or found[0] > left:
            self._stopped = True
            return
        whole, records = found
        self._first, self._last = self._first or header, header
        self.records += records
        self._skip = whole - HEADER_BYTES
        self._batches += 1
        if self._batches == MOST_COUNTED:  # the rest is taken to be like these
            self._is_whole = left == whole
            self.records = self.records * self._size // (self._size - left + whole)
            self._stopped = True
