"""The frames of a ksqlDB query stream in its delimited form: JSON values on lines of their own. No I/O.

The first line names the query and its columns; each array is a row. Between rows come blank lines (the server keeps an
idle connection alive) and continuation tokens. If the query failed, the last line is an error. There is no end mark:
the stream ends. Source: ksqlDB reference, "Run push and pull queries", `application/vnd.ksqlapi.delimited.v1`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.sidecar.formats import json_text
from services.sidecar.formats.json_text import JsonError

MEDIA_TYPE = "application/vnd.ksqlapi.delimited.v1"
LONGEST_SHOWN = 200
"""Characters of a line that is quoted."""


@dataclass(frozen=True, slots=True)
class Header:
    """The query has begun."""

    query_id: str
    """Empty if the server gives no id, as old servers do for pull queries."""
    columns: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The values of the columns, in their order, as JSON text: numbers stay what they are."""

    text: bytes

    def values(self) -> list[Any]:
        values: list[Any] = json_text.loads(self.text)
        return values


@dataclass(frozen=True, slots=True)
class ContinuationToken:
    """A later query can resume behind this token; all rows before the token have come."""

    token: str


Frame = Header | Row | ContinuationToken


class KsqldbError(Exception):
    """The server refuses a statement, or ends a query. `code` is the server's error code, or 0."""

    def __init__(self, text: str, code: int = 0, status: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.status = status
        """The HTTP status; 0 for an error within a stream."""

    @property
    def may_pass(self) -> bool:
        """Whether the server may accept the same statement later: it is busy, not ready, or has failed."""
        return self.status in (0, 408, 429) or self.status >= 500


class BrokenStreamError(Exception):
    """The stream breaks the protocol: half a line, a line that is too long, or no JSON."""


class FrameReader:
    """Makes frames of the bytes of a stream."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()
        self._has_header = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that are complete. KsqldbError when the server ends the query by an error; BrokenStreamError."""
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        if max(map(len, (*lines, rest))) > self._max_line_bytes:
            raise BrokenStreamError(f"a line of the query stream has more than {self._max_line_bytes} bytes")
        for line in lines:
            text = bytes(line.strip())
            if text:
                yield self._frame(text)

    def end(self) -> Iterator[Frame]:
        """The last frame of an ended stream; its line needs no line break. BrokenStreamError for half a line."""
        text = bytes(self._rest.strip())
        self._rest.clear()
        if text:
            yield self._frame(text)
        if not self._has_header:
            raise BrokenStreamError("the query stream ended before it began")

    def _frame(self, text: bytes) -> Frame:
        try:
            value = json_text.loads(text)
        except JsonError:
            raise BrokenStreamError(f"not a whole JSON value on the query stream: {_shown(text)}") from None
        match value:
            case {"@type": _, "message": _}:
                raise error_of(value)
            case {"continuationToken": str(token)}:
                return ContinuationToken(token)
            case {"columnNames": list(names)} if not self._has_header:
                self._has_header = True
                types = value.get("columnTypes") or []
                return Header(str(value.get("queryId") or ""), tuple(map(str, names)), tuple(map(str, types)))
            case list() if self._has_header:
                return Row(text)
            case _:
                raise BrokenStreamError(f"not a part of a query stream: {_shown(text)}")


def error_of(value: Mapping[str, Any], status: int = 0) -> KsqldbError:
    """An error with the server's message. The message must not quote the statement, which may hold secrets."""
    code = value.get("error_code")
    return KsqldbError(str(value.get("message", "no reason given")), code if isinstance(code, int) else 0, status)


def _shown(text: bytes) -> str:
    return text[:LONGEST_SHOWN].decode(errors="replace")
