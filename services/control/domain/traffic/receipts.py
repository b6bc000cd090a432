"""Questions about receipts: which questions are permitted, and what may be missing in an answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from mesh.rpc import traffic
from services.control.domain.errors import InvalidField

LARGEST_OFFSET = 2**62


@dataclass(frozen=True, slots=True)
class ReceiptQuery:
    """The checked conditions of a request; an empty text and None stand for all."""

    topic: str
    partition: int | None
    offset: int | None
    principal: str
    group: str
    since: datetime | None


def receipt_query(request: traffic.ListReceiptsRequest) -> ReceiptQuery:
    """The query that a request asks for; InvalidField says what is wrong with the request."""
    if not request.topic:
        raise InvalidField("topic", "is missing: receipts are those of one topic")
    partition = request.partition if request.HasField("partition") else None
    offset = request.offset if request.HasField("offset") else None
    for field, number in (("partition", partition), ("offset", offset)):
        if number is not None and not 0 <= number <= LARGEST_OFFSET:
            raise InvalidField(field, f"{number} is none; partitions and offsets count from 0")
    since = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else None
    return ReceiptQuery(request.topic, partition, offset, request.principal, request.group, since)


def incomplete(untold: tuple[datetime, datetime] | None) -> str:
    """Why a reader may be missing. `untold`: the time in which gateways did not tell all readers apart."""
    if untold is None:
        return ""
    first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in untold)
    return f"a gateway had too many readers to tell all of them apart, at times between {first} and {last}"
