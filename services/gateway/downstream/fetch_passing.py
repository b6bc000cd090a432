"""An answer to a Fetch that passes to the client while it still arrives from the broker."""

from typing import Final

from services.gateway.downstream.fetch_in_flight import SESSION_AT, FetchInFlight
from services.gateway.downstream.fetch_questions import Part
from services.gateway.requests.records.fetch_sessions import NO_SESSION, Marks
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.frames import SIZE_BYTES, response_prefix
from services.gateway.wire.primitives import INT32, Buffer
from services.gateway.wire.scanner import Entries, join_fetch_response, patch_correlation_id
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.fetch_beginning import FetchBeginning, read_beginning

_FETCH: Final = int(ApiKey.FETCH)
_FLEXIBLE: Final = flexible_since(ApiKey.FETCH) or 0
_BEHIND_ID: Final = SIZE_BYTES + INT32.size


def beginning_of(fetch: FetchInFlight, part: Part, beginning: memoryview, missing: int) -> FetchBeginning | None:
    """The beginning of an answer that may pass as it comes, behind `passing`; None if all of it is needed."""
    if not fetch.passes or fetch.session_went_on:
        return None
    version = part.way.version
    found = read_beginning(beginning, version, _BEHIND_ID + (version >= _FLEXIBLE), len(beginning), missing)
    if found is None or not found.record_bytes or (found.topic, found.partition) not in part.wanted:
        return None
    return found


def passing(
    fetch: FetchInFlight, part: Part, found: FetchBeginning, beginning: memoryview, missing: int
) -> tuple[Buffer, ...]:
    """The beginning of the client's answer; from here on its content counts as sent."""
    slot = (found.topic, found.partition)
    marks = Marks(found.high_watermark, found.last_stable_offset, found.log_start_offset)
    part.fetches.passed()
    session, session_id, flexible = fetch.session, NO_SESSION, part.way.version >= _FLEXIBLE
    if session is not None:
        session.must_tell(slot, marks, 0, found.record_bytes)
        session_id = session.session_id
    if fetch.version < IDS_SINCE:
        patch_correlation_id(beginning, SIZE_BYTES, fetch.clients_id)
        if session is not None:
            INT32.pack_into(beginning, _BEHIND_ID + flexible + SESSION_AT, session_id)
        return (beginning,)
    entries = [Entries(found.topic, fetch.routes[found.topic].topic_id, ())]
    head, *_ = join_fetch_response(fetch.version, entries, found.throttle_time_ms, session_id)
    head = head[:-3]  # without the count of partitions, and the tags of topic and answer
    rest = beginning[found.partitions_at :]
    prefix = response_prefix(_FETCH, fetch.version, fetch.clients_id, len(head) + len(rest) + missing)
    return (prefix + head, rest)
