"""Bytes into lines, as they come; no line is held that is longer than the bound."""

from collections.abc import Iterator


class Lines:
    """Fed with chunks. Gives whole lines without their end; None for one that was too long, whose bytes are dropped."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._too_long = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        first, *others = chunk.split(b"\n")
        self._add(first)
        for part in others:
            yield self._taken()
            self._add(part)

    def rest(self) -> Iterator[bytes | None]:
        """The bytes after the last line end, if there are any."""
        if self._begun_bytes or self._too_long:
            yield self._taken()

    def _add(self, part: bytes) -> None:
        if self._too_long or self._begun_bytes + len(part) > self._max_bytes:
            self._too_long = True
            self._begun.clear()
        elif part:
            self._begun.append(part)
            self._begun_bytes += len(part)

    def _taken(self) -> bytes | None:
        line = None if self._too_long else b"".join(self._begun)
        self._begun.clear()
        self._begun_bytes = 0
        self._too_long = False
        return line
