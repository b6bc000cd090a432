"""Changes names of topics: calls go out with the cluster's names, answers come in with those of the clients.

Only calls of clients that have other names for topics of the cluster come here. A message passes as it is if all its
topics have the same name on both sides. Other messages are decoded and encoded again; their records stay slices of the
input.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from services.gateway.requests.plan import Body, Call, RawResponse, Unreachable, Verbatim
from services.gateway.requests.topic_names import TopicNames
from services.gateway.wire.codec import decode, decode_prefix
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_request_header, parse_response_header
from services.gateway.wire.primitives import WireError
from services.gateway.wire.renaming import names_any, renamed
from services.gateway.wire.schema import Kind, Named, Struct, message_of

Inward = Callable[[RawResponse], RawResponse | Unreachable]
TOPICS = frozenset({Named.TOPIC})


class _NameTakenError(Exception):
    """A topic of another cluster has the name that one of this cluster has here."""


def crossing(call: Call, names: TopicNames) -> tuple[Call, Inward] | Unreachable:
    """The call as it goes out, and the change of names for its answer."""
    asked: dict[str, str] = {}
    """The cluster's name -> the name in the call: the answer is about the same topics, even if rules have changed."""

    def upstream(topic: str) -> str:
        name = names.upstream(topic)
        other = names.taken_by(topic)
        if other is not None:
            raise _NameTakenError(f"topic {topic} can't be named there: it is what topic {other} is called")
        asked[name] = topic
        return name

    try:
        outward = _outward(call, upstream)
    except WireError as error:
        return Unreachable(call.cluster, f"a request that can't be read: {error}", never_sent=True)
    except _NameTakenError as error:
        return Unreachable(call.cluster, str(error), never_sent=True, unsupported=True)
    return outward, lambda response: _inward(call, asked, names, response)


def _outward(call: Call, upstream: Callable[[str], str]) -> Call:
    message = call.message
    if isinstance(message, Struct):
        return replace(call, message=renamed(message, {Named.TOPIC: upstream}))
    spec = message_of(call.key, Kind.REQUEST)
    if spec is None or not names_any(spec.cls, TOPICS):
        return call
    if isinstance(message, Verbatim):
        frame = message.frame
        header = parse_request_header(frame, SIZE_BYTES, len(frame))
        read, _ = decode_prefix(spec.cls, call.version, frame, header.body_offset)
    else:
        assert isinstance(message, Body)
        read, _ = decode_prefix(spec.cls, call.version, memoryview(b"".join(message.pieces)), 0)
    written = renamed(read, {Named.TOPIC: upstream})
    return call if written is read else replace(call, message=written)


def _inward(
    call: Call, asked: Mapping[str, str], names: TopicNames, response: RawResponse
) -> RawResponse | Unreachable:
    spec = message_of(call.key, Kind.RESPONSE)
    if spec is None or not names_any(spec.cls, TOPICS):
        return response
    try:
        read = decode(spec.cls, response.version, response.frame, response.body_offset)
    except WireError as error:
        return Unreachable(call.cluster, f"an answer that is not {spec.cls.__name__} v{response.version}: {error}")
    written = renamed(read, {Named.TOPIC: lambda name: asked.get(name) or names.virtual(name)})
    if written is read:
        return response
    frame = memoryview(bytearray(encode_response(written, response.version, 0)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), call.key, response.version)
    return RawResponse(frame, header.body_offset, response.version)
