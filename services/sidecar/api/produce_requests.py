"""Turns HTTP requests into produce requests: their bodies, and their headers that hold for all records."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from mesh.schemas.schema import Reference
from services.sidecar.api.exchange import MAX_ID_LENGTH
from services.sidecar.api.tracing import PLACE, ExchangeTrace, trace_of
from services.sidecar.formats import Format
from services.sidecar.producing.headers import RequestHeaders
from services.sidecar.producing.produce_request import (
    ProduceRequest,
    RecordRequest,
    SchemaChoice,
    Side,
    SubjectStrategy,
)
from services.sidecar.records import CORRELATION_HEADER, TRACEABILITY_HEADER


@dataclass(frozen=True, slots=True)
class HeaderPolicy:
    """The caller's data that goes into the headers of records, besides its ids and its trace."""

    forward_authorization: bool = False
    caller_id: str = ""

    def of(self, request: Request) -> RequestHeaders:
        """The headers of a request that hold for all its records."""
        headers, traced = request.headers, request.scope.get(PLACE)
        fixed: list[tuple[str, bytes]] = []
        if self.forward_authorization and (authorization := headers.get("authorization")):
            fixed.append(("authorization", authorization.encode("latin-1")))
        if self.caller_id:
            fixed.append(("caller_id", self.caller_id.encode()))
        return RequestHeaders(
            correlation_id=headers.get(CORRELATION_HEADER, "")[:MAX_ID_LENGTH],
            traceability_id=headers.get(TRACEABILITY_HEADER, "")[:MAX_ID_LENGTH],
            trace=(
                traced.sends(request.path_params.get("topic", ""))
                if isinstance(traced, ExchangeTrace)
                else trace_of(headers)
            ),
            fixed=tuple(fixed),
        )


def produce_request(topic: str, members: Mapping[str, Any]) -> ProduceRequest:
    """A validated body as a request."""
    return ProduceRequest(
        topic=topic,
        key=_side("key", members),
        value=_side("value", members),
        records=[record_request(given) for given in members["records"]],
    )


def _side(name: str, members: Mapping[str, Any]) -> Side:
    strategy = members.get(f"{name}SubjectStrategy")
    schema = SchemaChoice(
        raw=members.get(f"{name}Schema"),
        schema_id=members.get(f"{name}SchemaId"),
        version=members.get(f"{name}SchemaVersion"),
        subject=members.get(f"{name}SchemaSubject"),
        references=tuple(
            Reference(one["name"], one["subject"], one["version"])
            for one in members.get(f"{name}SchemaReferences") or ()
        ),
        message=members.get(f"{name}SchemaMessage"),
        strategy=None if strategy is None else SubjectStrategy(strategy),
    )
    format_ = members.get(f"{name}Format")
    return Side(name, None if format_ is None else Format.parse(format_), schema)


def record_request(members: Mapping[str, Any]) -> RecordRequest:
    """One record of the request."""
    get = members.get
    return RecordRequest(
        get("key"),
        get("value"),
        get("partition"),
        get("timestamp"),
        get("correlationId"),
        get("traceabilityId"),
        header_list(members["headers"]) if "headers" in members else (),
    )


def header_list(given: Mapping[str, str] | Sequence[Mapping[str, str | None]]) -> list[tuple[str, bytes | None]]:
    """Both forms: a map of texts, or a list of {key, value} with the value in base64."""
    if isinstance(given, Mapping):
        return [(name, value.encode()) for name, value in given.items()]
    return [(str(one["key"]), _bytes(one.get("value"))) for one in given]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
