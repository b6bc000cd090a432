"""The Kafka headers of a record: headers from the request for all its records, and headers of the record itself.

Tracing comes first, then the record's own headers in their order. A record's value wins over the request's value. A
member (`correlationId`) wins over a header of the same name, in any case of letters. A record without any correlation
id gets a new id of its own.

Records with the same headers share one list, which nobody changes after it was made.
"""

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass

from mesh.tracing.context import NO_TRACE, Trace
from services.sidecar.producing.produce_request import RecordRequest
from services.sidecar.records import CORRELATION_HEADER, TRACEABILITY_HEADER, Headers

_SUFFIXES = [base64.urlsafe_b64encode(number.to_bytes(4))[:6] for number in range(500)]


def correlation_ids() -> Iterator[bytes]:
    """Endless different ids of 16 bytes in 22 characters; neighbouring ids share most of their random bytes."""
    while True:
        prefix = base64.urlsafe_b64encode(os.urandom(12))
        for suffix in _SUFFIXES:
            yield prefix + suffix


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The headers that a request gives to all its records; an empty value means that the request gives none."""

    correlation_id: str = ""
    traceability_id: str = ""
    trace: Trace = NO_TRACE
    fixed: tuple[tuple[str, bytes], ...] = ()
    """Headers before all others: the caller's token or name, if the settings ask for that."""


class HeaderWriter:
    """Makes the headers of one request's records, one after the other."""

    def __init__(self, request: RequestHeaders) -> None:
        self._correlation_id = request.correlation_id.encode()
        self._traceability_id = request.traceability_id.encode()
        self._fixed: Headers = list(request.fixed)
        self._trace: Headers = [(name, value.encode()) for name, value in request.trace.headers.items()]
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
