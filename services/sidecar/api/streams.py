"""`/streams/...` reads the stores of topologies; `/adm/streams` shows their status and replaces a definition."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of
from services.sidecar.api.contract import CONTRACT, parameters
from services.sidecar.api.status import json_response
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import json_text
from services.sidecar.streams.reading import (
    FOREVER,
    MAX_WINDOWS,
    NoSuchStoreError,
    NotHereError,
    NotReadyError,
    Span,
    read_key,
)
from services.sidecar.streams.records import TopologyError
from services.sidecar.streams.running_topology import RunningTopology, StreamStatus
from services.sidecar.streams.streams import Streams, UnknownStreamError

log = structlog.get_logger(__name__)


class StreamEndpoints:
    """For the backend, and for operators."""

    def __init__(self, streams: Streams, *, read_seconds: float) -> None:
        self._streams = streams
        self._read_seconds = read_seconds

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.read_stream_state)

    def admin_routes(self) -> list[Route]:
        return CONTRACT.routes(self.list_streams, self.replace_stream)

    async def read_stream_state(self, request: Request) -> Response:
        given = parameters(request)
        topology = self._named(given["stream"])
        caller_of(request).check_reads([topology.plan.changelog(given["store"])])
        key = _key(given["key"], given.get("keyFormat", "string"))
        span = Span(given.get("from", 0), given.get("to", FOREVER), given.get("limit", MAX_WINDOWS))
        try:
            found = await read_key(topology, given["store"], key, span, self._read_seconds)
        except NoSuchStoreError as error:
            raise Fault(FaultKind.STREAM_NOT_FOUND, str(error)) from None
        except NotHereError as error:
            raise Fault(FaultKind.STREAM_STATE_NOT_FOUND, str(error), {"elsewhere": error.elsewhere}) from None
        except NotReadyError as error:
            raise Fault(FaultKind.STREAM_NOT_READY, str(error)) from None
        return Response(json_text.dumps({"key": key, "value": found}), media_type="application/json")

    async def list_streams(self, request: Request) -> Response:
        return json_response([_shown(one) for one in self._streams.statuses()])

    async def replace_stream(self, request: Request) -> Response:
        name = self._named(parameters(request)["stream"]).plan.name
        try:
            status = await self._streams.replace(name)
        except (TopologyError, OSError, Fault) as error:
            raise Fault(FaultKind.STREAM_NOT_REPLACED, f"The definition before goes on: {error}") from None
        log.info("a topology was replaced over HTTP", topology=name)
        return json_response(_shown(status))

    def _named(self, name: str) -> RunningTopology:
        try:
            return self._streams.named(name)
        except UnknownStreamError as error:
            raise Fault(FaultKind.STREAM_NOT_FOUND, str(error)) from None


def _key(text: str, format_: str) -> Any:
    if format_ == "string":
        return text
    try:
        return json_text.loads(text.encode())
    except json_text.JsonError as error:
        raise invalid("/key", f"is not JSON: {error}") from None


def _shown(status: StreamStatus) -> dict[str, object]:
    shown = asdict(status) | {"state": status.state.value, "stateBytes": status.state_bytes}
    del shown["state_bytes"]
    if not status.reason:
        del shown["reason"]
    return shown
