"""Requests to a broker: their bytes, and the waiters for an answer or for a connection to carry them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from services.gateway.frame_stream import Passage
from services.gateway.requests.plan import Body, Call, RawResponse, Sent, Unreachable, Verbatim
from services.gateway.wire.frames import (
    REQUEST_ID_AT,
    SIZE_BYTES,
    encode_request,
    parse_response_header,
    request_prefix,
)
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner import patch_correlation_id

Settle = Callable[[RawResponse | Unreachable | Sent, bool], None]
"""Takes the outcome of a call, and whether the buffer behind it is the taker's own."""


class Awaiting(Protocol):
    """A waiter for an answer. Exactly one of `answered` and `failed` is called, once. If `begun` has returned a
    passage, the passage gets the rest instead."""

    correlation_id: int
    deadline: float

    @property
    def api_key(self) -> int: ...

    def answered(self, frame: memoryview, owned: bool) -> None:
        """Raises WireError for bytes that can't be read, before the answer goes to anybody."""

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        """A large answer begins to come (`FrameStream.frame_begun`). None: `answered` gets the answer as a whole."""

    def failed(self, outcome: Unreachable) -> None: ...


@dataclass(slots=True)
class PendingCall:
    """A call that goes by its plan."""

    correlation_id: int
    api_key: int
    version: int
    deadline: float
    settle: Settle

    def answered(self, frame: memoryview, owned: bool) -> None:
        header = parse_response_header(frame, SIZE_BYTES, len(frame), self.api_key, self.version)
        self.settle(RawResponse(frame, header.body_offset, self.version), owned)

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        return None

    def failed(self, outcome: Unreachable) -> None:
        self.settle(outcome, True)


class Unsent(NamedTuple):
    """A request that was submitted while the connection was not up, and the waiter for its answer, if there is one."""

    pieces: tuple[Buffer, ...]
    pending: Awaiting | None
    sent: Settle | None = None
    """Gets the outcome of a request that has no answer, when the request leaves."""


def pieces_of(call: Call, api_key: int, correlation_id: int, client_id: str | None) -> tuple[Buffer, ...]:
    """The bytes of a call's request. WireError: its version has no room for what it says."""
    message = call.message
    if isinstance(message, Verbatim):
        patch_correlation_id(message.frame, REQUEST_ID_AT, correlation_id)
        return (message.frame,)
    if isinstance(message, Body):
        size = sum(map(len, message.pieces))
        return (request_prefix(api_key, call.version, correlation_id, client_id, size), *message.pieces)
    return (encode_request(message, call.version, correlation_id, client_id),)
