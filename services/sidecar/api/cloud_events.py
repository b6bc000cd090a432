"""CloudEvents over HTTP, by the HTTP protocol binding: structured, batched and binary mode.

The Content-Type of a request shows its mode; the header `ce-specversion` shows binary mode.
"""

import re
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import Request

from mesh.json_types import type_name
from services.sidecar.api.contract import parameters
from services.sidecar.faults import Fault, FaultKind, Violation, invalid, refused
from services.sidecar.formats import cloud_event, json_text
from services.sidecar.formats.cloud_event import CloudEvent
from services.sidecar.producing.cloud_events import ContentMode, outgoing
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.records import Outgoing

MAX_VIOLATIONS = 100
"""In one answer."""

_PREFIX = "ce-"
_EVENTS = "application/cloudevents"
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPED = re.compile(r"\\(.)")


def carries_events(headers: Headers) -> bool:
    """Whether a request brings CloudEvents, in any mode."""
    return _media_type(headers).startswith(_EVENTS) or "ce-specversion" in headers


def event_records(request: Request, body: bytes, headers: HeaderWriter) -> list[Outgoing]:
    """The events of a request as Kafka gets them, in the mode that the request asks for."""
    mode = ContentMode(parameters(request).get("contentMode", ContentMode.BINARY.value))
    return outgoing(events_of(request, body), mode, headers)


def events_of(request: Request, body: bytes) -> list[CloudEvent]:
    """The events that a request carries. Fault with all that is wrong with them, each with its JSON pointer."""
    media_type = _media_type(request.headers)
    match media_type:
        case cloud_event.JSON:
            return _checked([cloud_event.from_json(_loaded(body))])
        case cloud_event.JSON_BATCH:
            batch = _loaded(body)
            if not isinstance(batch, list):
                raise invalid("", f"{type_name(batch)} found, array expected")
            return _checked([cloud_event.from_json(one, f"/{index}") for index, one in enumerate(batch)])
        case _ if media_type.startswith(_EVENTS):
            raise Fault(
                FaultKind.CONTENT_TYPE_MISMATCH,
                f"Content-Type is {media_type}; of the formats of CloudEvents send {cloud_event.JSON} or "
                f"{cloud_event.JSON_BATCH}, or binary mode",
            )
        case _:
            return _checked([_binary(request.headers, body)])


def said_beside_body(request: Request) -> bytes:
    """The parts by which two requests with events and equal bodies may differ; empty for other requests."""
    if not carries_events(request.headers):
        return b""
    said = [(name, value) for name, value in request.headers.items() if name.startswith((_PREFIX, "content-type"))]
    return json_text.dumps([sorted(said), parameters(request).get("contentMode")])


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _loaded(body: bytes) -> object:
    try:
        return json_text.loads(body)
    except json_text.JsonError as error:
        raise Fault(FaultKind.CONTENT_TYPE_MISMATCH, f"The body is not JSON, as Content-Type says: {error}") from None


def _checked(found: list[CloudEvent | list[Violation]]) -> list[CloudEvent]:
    wrong = [violation for one in found if isinstance(one, list) for violation in one]
    if wrong:
        raise refused(wrong[:MAX_VIOLATIONS])
    return [one for one in found if isinstance(one, CloudEvent)]


def _binary(headers: Headers, body: bytes) -> CloudEvent | list[Violation]:
    """Attributes from headers, data as it came."""
    attributes: dict[str, str] = {}
    wrong: list[Violation] = []
    for header, value in headers.items():
        name = header.removeprefix(_PREFIX)
        if name == header:
            continue
        if name == "datacontenttype" or name in attributes:
            twice = "comes twice" if name in attributes else "is the header Content-Type in binary mode"
            wrong.append(Violation(f"/{header}", f"{name} {twice}"))
            continue
        try:
            attributes[name] = _decoded(value)
        except ValueError as error:
            wrong.append(Violation(f"/{header}", str(error)))
            attributes[name] = "?"  # it is there, and what is wrong with it is said
    if content_type := headers.get("content-type"):
        attributes["datacontenttype"] = content_type
    said = {violation.pointer for violation in wrong}
    wrong += [one for one in cloud_event.violations(attributes, _place) if one.pointer not in said]
    return wrong or CloudEvent(attributes, body or None)


def _place(name: str) -> str:
    return "/content-type" if name == "datacontenttype" else f"/{_PREFIX}{name}"


def _decoded(value: str) -> str:
    """A header's value as an attribute: without quotes, percent-decoded once. ValueError when it is none."""
    if not value.isascii():
        raise ValueError("must be ASCII; percent-encode the UTF-8 of other characters")
    if _QUOTED.fullmatch(value):
        value = _ESCAPED.sub(r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise ValueError("its percent-encoding is no UTF-8") from None
