"""The Kafka headers of a record: headers from the request for all its records, and headers of the record itself.

Tracing comes first, then the record's own headers in their order. A record's value wins over the request's value. A
member (`correlationId`) wins over a header of the same name, in any case of letters. A record without any correlation
id gets a new id of its own.

Records with the same headers share one list, which nobody changes after it was made.
"""

import base64
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.sidecar.producing.produce_request import RecordRequest
from services.sidecar.records import CORRELATION_HEADER, TRACEABILITY_HEADER, Headers

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
MAX_TRACESTATE_CHARACTERS = 512
"""The length that the W3C recommendation asks a vendor to propagate at least; a longer tracestate is dropped."""

_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_STATE_MEMBER = re.compile(
    r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


_SUFFIXES = [base64.urlsafe_b64encode(number.to_bytes(4))[:6] for number in range(500)]


def correlation_ids() -> Iterator[bytes]:
    """Endless different ids of 16 bytes in 22 characters; neighbouring ids share most of their random bytes."""
    while True:
        prefix = base64.urlsafe_b64encode(os.urandom(12))
        for suffix in _SUFFIXES:
            yield prefix + suffix


@dataclass(frozen=True, slots=True)
class Trace:
    """A valid W3C trace context."""

    parent: str = ""
    state: str = ""

    @classmethod
    def of(cls, parents: list[str], states: list[str]) -> "Trace":
        """The trace context of a request's header lines. An invalid parent voids both; an invalid state only itself."""
        if len(parents) != 1:
            return cls()
        parent = parents[0].strip()
        found = _TRACEPARENT.fullmatch(parent)
        if found is None or (found[1] == "00" and found[2]):
            return cls()
        state = ",".join(states)
        members = [member.strip(" \t") for member in state.split(",")]
        known = all(_STATE_MEMBER.fullmatch(member) for member in members if member)
        if not known or len(members) > 32 or len(state) > MAX_TRACESTATE_CHARACTERS:
            return cls(parent)
        return cls(parent, state.strip())


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The headers that a request gives to all its records; an empty value means that the request gives none."""

    correlation_id: str = ""
    traceability_id: str = ""
    trace: Trace = Trace()
    fixed: tuple[tuple[str, bytes], ...] = ()
    """Headers before all others: the caller's token or name, if the settings ask for that."""


class HeaderWriter:
    """Makes the headers of one request's records, one after the other."""

    def __init__(self, request: RequestHeaders) -> None:
        self._correlation_id = request.correlation_id.encode()
        self._traceability_id = request.traceability_id.encode()
        self._fixed: Headers = list(request.fixed)
        trace = ((TRACEPARENT, request.trace.parent), (TRACESTATE, request.trace.state))
        self._trace: Headers = [(name, value.encode()) for name, value in trace if value]
        self._ids = correlation_ids()
        self._shared = self._of(None, None, (), True) if self._correlation_id else None
        self._says_nothing = not (request.correlation_id or request.traceability_id or self._fixed or self._trace)

    def of(self, record: RecordRequest) -> Headers:
        """The headers of the next record."""
        _, _, _, _, correlation_id, traceability_id, given = record
        if not (correlation_id or traceability_id or given):
            if self._says_nothing:
                return [(CORRELATION_HEADER, next(self._ids))]
            return self._of(None, None, (), True) if self._shared is None else self._shared
        own: Headers = []
        traced = bool(self._trace)
        correlation = correlation_id.encode() if correlation_id else None
        traceability = traceability_id.encode() if traceability_id else None
        for header in given:
            name, value = header
            match name.lower():
                case "x-correlation-id":  # CORRELATION_HEADER
                    correlation = correlation or value
                case "x-traceability-id":  # TRACEABILITY_HEADER
                    traceability = traceability or value
                case "traceparent" | "tracestate":  # the record's trace replaces the request's trace as a whole
                    traced = False
                    own.append(header)
                case _:
                    own.append(header)
        return self._of(correlation, traceability, own, traced)

    def _of(
        self, correlation: bytes | None, traceability: bytes | None, own: Headers | tuple[()], traced: bool
    ) -> Headers:
        made = list(self._fixed)
        if traceability := traceability or self._traceability_id:
            made.append((TRACEABILITY_HEADER, traceability))
        made.append((CORRELATION_HEADER, correlation or self._correlation_id or next(self._ids)))
        if traced:
            made += self._trace
        made += own
        return made
