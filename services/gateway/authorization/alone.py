"""The answer of a broker whose ACLs allow a client nothing, where a cluster does not let this client in.

No broker is asked, and the cluster may be one of several of a request. So the guard of the API runs on the call alone.
The API's own plan does not run: a part that the guard passes on gets an empty answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

from mesh.routing import RoutingTable
from services.gateway.authorization.access import Access, Authorization, Mode
from services.gateway.authorization.asking import Asking
from services.gateway.authorization.guarding import unguarded
from services.gateway.authorization.refusals import Refusal, Report
from services.gateway.authorization.table import GUARDS
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.nodes import VirtualNodes
from services.gateway.requests.plan import Body, Call, Command, MeshView, Plan, RawResponse, Request, Verbatim
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.frames import (
    SIZE_BYTES,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    request_prefix,
)
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Kind, Struct, message_of

_NOTHING = Authorization(Mode.ENFORCE)
_NO_MESH = MeshView(
    table=RoutingTable(),
    clusters={},
    nodes=VirtualNodes((), {}),
    session=Session(),
    memory=Memory(),
    served={},
    mesh_id="",
    now=0.0,
    clock=lambda: 0.0,
    time_ms=0,
    random_bits=lambda _: 0,
    poll_bytes=0,
)
"""A guard looks for sessions of the client's own, and finds none: those of brokers are other ones."""


@dataclass(slots=True)
class _Alone(Asking):
    """A call without its plan."""

    def pass_on(self) -> Plan:
        spec = message_of(self.request.api_key, Kind.RESPONSE)
        if spec is None:
            raise WireError("refusal", 0, f"api key {self.request.api_key} has no answer")
        yield from ()
        return spec.cls()

    def go_on(self, message: Struct, cls: type[Any], *, least: int = 0) -> Generator[Command, Any, Any]:
        yield from ()
        return cls()

    def answer(self, cls: type[Any]) -> Generator[Command, Any, Any]:
        yield from ()
        return cls()

    def names(self, ids: Iterable[bytes]) -> Generator[Command, Any, dict[bytes, str]]:
        """Ids have no names here, and no name is allowed."""
        yield from ()
        return dict.fromkeys(ids, "")


def refused_answer(call: Call, session: Session, reason: str, report: Report) -> Struct | RawResponse:
    """The answer to the call; each refused operation is reported with the reason."""
    version = call.version
    access = Access.of(_NOTHING, session.proved, session.address)

    def told(refusal: Refusal) -> None:
        report(replace(refusal, cause=reason))

    asking = _Alone(HANDLERS[call.key], _request(call), _NO_MESH, access, told)
    guard = GUARDS.get(call.key, unguarded)
    try:
        next(guard(asking))
    except StopIteration as stop:
        answer = stop.value
    else:
        raise WireError("refusal", 0, f"api key {call.key} can't be refused without a question")
    if not isinstance(answer, Struct):
        raise WireError("refusal", 0, f"api key {call.key} has no answer")
    if not call.raw:
        return answer
    frame = memoryview(bytearray(encode_response(answer, version, 0)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), call.key, version)
    return RawResponse(frame, header.body_offset, version)


def _request(call: Call) -> Request:
    message = call.message
    if isinstance(message, Verbatim):
        frame = message.frame
    elif isinstance(message, Body):
        size = sum(map(len, message.pieces))
        frame = memoryview(b"".join((request_prefix(call.key, call.version, 0, None, size), *message.pieces)))
    else:
        frame = memoryview(encode_request(message, call.version, 0, None))
    return Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
