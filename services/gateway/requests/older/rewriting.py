"""A request in another version, and its answer as a message again: the part that all translators share."""

from typing import TypeVar

from mesh.validation.checks import V2
from services.gateway.requests.plan import Answer, Body, Close, Handle, MeshView, NoAnswer, Plan, RawResponse, Request
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)


def rewritten(request: Request, message: Struct, version: int, magic: int = V2) -> Request:
    """A request of the same client with this message, whose records came in this message format."""
    header = request.header
    frame = memoryview(bytearray(encode_request(message, version, header.correlation_id, header.client_id)))
    return Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame, magic)


def message_of_answer(answer: Answer, cls: type[M], version: int) -> M | NoAnswer | Close:
    """A handler's answer to a request of `version`, as a message, whichever form the handler chose."""
    match answer:
        case RawResponse():
            return answer.decode(cls)
        case Body(pieces):
            return decode(cls, version, b"".join(pieces))
        case NoAnswer() | Close():
            return answer
    if isinstance(answer, cls):
        return answer
    raise TypeError(f"{cls.__name__} was expected as an answer, not {type(answer).__name__}")


def raised(request_class: type[Struct], response_class: type[Struct], version: int, handle: Handle) -> Handle:
    """A translator for versions with the same meaning as `version`, in fewer fields.

    The codec fills in the fields that they lack, and leaves unknown fields out of the answer.
    """

    def handle_older(request: Request, mesh: MeshView) -> Plan:
        asked = rewritten(request, request.decode(request_class), version)
        answer = yield from handle(asked, mesh)
        return message_of_answer(answer, response_class, version)

    return handle_older


_NEWEST_CODE = {0: ErrorCode.INVALID_REQUIRED_ACKS, 1: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
"""The last error codes that clients of Produce and Fetch 0 (0.8.2) and 1 (0.9) know. A code that it does not know ends
the Java producer of 0.8.2 with a NullPointerException."""
_ABOUT_LEADERS = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Codes that say "ask again later", younger than all clients whose versions are translated."""


def known_code(error: int, version: int) -> int:
    """The error code that stands for this error in this version of Produce or Fetch."""
    if error in _ABOUT_LEADERS:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    newest = _NEWEST_CODE.get(version, ErrorCode.POLICY_VIOLATION)
    return error if error <= newest else ErrorCode.UNKNOWN_SERVER_ERROR
