"""`GET …/records`, read once or as a stream, and `POST …/acknowledgements` for streams."""

import contextlib
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of, check_may_use
from services.sidecar.api.consumers import check_available, check_reads, committed, consumptions, instance_id
from services.sidecar.api.contract import CONTRACT, parameters
from services.sidecar.api.hanging_up import WatchedResponse, caller
from services.sidecar.api.requests import checked_body
from services.sidecar.api.status import json_response, no_content
from services.sidecar.api.streaming_records import AnswerKind, RecordStreamResponse
from services.sidecar.auditing.active import ActiveAudit
from services.sidecar.consuming.cursor import CursorError, positions_in
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_values import HeaderShape, ReadRequest
from services.sidecar.consuming.instances import Instances
from services.sidecar.consuming.record_stream import StreamRequest
from services.sidecar.consuming.record_text import event_batch, record_array
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import Format
from services.sidecar.records import Consumed, Consumption, Partition
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry.traffic import SidecarTraffic


class RecordEndpoints:
    """The backend's reads from its instances."""

    def __init__(
        self, instances: Instances, settings: SidecarSettings, audit: ActiveAudit, traffic: SidecarTraffic
    ) -> None:
        self._instances = instances
        self._settings = settings
        self._audit = audit
        self._traffic = traffic

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.read_records, self.acknowledge)

    async def read_records(self, request: Request) -> Response:
        instance = self._instance(request)
        kind = AnswerKind.of(request)
        if kind.is_stream:
            return await self._stream(request, instance, kind)
        asked = self.asked(request, self._format(request), as_events=kind is AnswerKind.CLOUD_EVENTS)
        if asked.as_events:
            return await self.read(request, instance, asked, event_batch, kind.value)
        shape = _headers(request, instance)
        return await self.read(request, instance, asked, lambda records: record_array(records, shape))

    async def acknowledge(self, request: Request) -> Response:
        asked = await checked_body(request, self._settings.max_request_bytes)
        instance = self._instance(request)
        done = consumptions(asked.get("offsets", []))
        if "cursor" in asked:
            done += [Consumption(place, at - 1) for place, at in _positions(asked["cursor"], "/cursor").items() if at]
        check_reads(request, (one.partition for one in done))
        commits = await self._audit.commit(done, instance.acknowledge(done))
        return json_response([committed(one, known=True) for one in commits])

    def asked(self, request: Request, format_: Format | None = None, *, as_events: bool = False) -> ReadRequest:
        """The read that a request asks for."""
        timeout_ms = parameters(request).get("timeout")
        return ReadRequest(
            max_bytes=self._max_bytes(request),
            timeout=None if timeout_ms is None else min(timeout_ms, self._settings.max_read_ms) / 1000,
            format=format_,
            as_events=as_events,
        )

    async def read(
        self,
        request: Request,
        instance: ConsumerInstance,
        asked: ReadRequest,
        shown: Callable[[list[Consumed]], bytes],
        media_type: str = "application/json",
    ) -> Response:
        """Answers with the records of one read, as `shown` writes them. Records that the caller does not take come
        again."""
        began = time.monotonic()
        async with caller(request.receive) as reader:
            try:
                records = await reader.waits_for(self._records(instance, asked))
            except Fault:
                self._traffic.not_consumed(time.monotonic() - began)
                raise
            if records is None:
                return no_content()  # to nobody
            await self._check_given(request, instance, records)
            if records and reader.is_gone:
                await instance.give_back(records)
                return no_content()  # to nobody

        async def given() -> None:
            self._audit.given(records)
            self._traffic.consumed(records, time.monotonic() - began)

        async def lost() -> None:
            await instance.give_back(records)

        return WatchedResponse(shown(records), media_type, given=given, lost=lost)

    async def _records(self, instance: ConsumerInstance, asked: ReadRequest) -> list[Consumed]:
        """None while there is no room to audit them."""
        longest = instance.options.read_timeout
        if not await self._audit.room(longest if asked.timeout is None else min(asked.timeout, longest)):
            return []
        return await instance.read(asked)

    async def _stream(self, request: Request, instance: ConsumerInstance, kind: AnswerKind) -> Response:
        settings = self._settings
        given = parameters(request)
        window = min(given.get("window", settings.stream_window), settings.max_stream_window)
        asked = StreamRequest(
            max_bytes=self._max_bytes(request),
            quiet_seconds=settings.stream_heartbeat_ms / 1000,
            window=None if given.get("ack") == "none" else window,
            format=self._format(request),
            starts=_positions(request.headers.get("last-event-id", ""), "/Last-Event-ID"),
        )
        async with contextlib.AsyncExitStack() as context:
            stream = await context.enter_async_context(instance.stream(asked))
            return RecordStreamResponse(
                instance,
                stream,
                context.pop_all(),
                framing=kind.framing,
                headers=_headers(request, instance),
                stall_seconds=settings.instance_timeout_ms / 1000,
                check=lambda records: caller_of(request).check_goes_on(record.topic for record in records),
                audit=self._audit,
                traffic=self._traffic,
            )

    def _instance(self, request: Request) -> ConsumerInstance:
        instance = self._instances.get(instance_id(request))
        check_may_use(request, instance)
        return instance

    async def _check_given(self, request: Request, instance: ConsumerInstance, records: list[Consumed]) -> None:
        """Fault if this caller may not read the records. Another call may have subscribed the instance meanwhile."""
        try:
            caller_of(request).check_reads({record.topic for record in records})
        except Fault:
            await instance.give_back(records)
            raise

    def _max_bytes(self, request: Request) -> int:
        asked: int | None = parameters(request).get("max_bytes")
        bound = self._settings.request_max_bytes
        return bound if asked is None else min(asked, bound)

    def _format(self, request: Request) -> Format | None:
        given = parameters(request).get("format")
        if given is None:
            return None
        format_ = Format.parse(given)
        check_available(format_, FaultKind.CONSUMER_FORMAT_MISMATCH, self._settings)
        return format_


def _headers(request: Request, instance: ConsumerInstance) -> HeaderShape:
    given = parameters(request).get("headers")
    return instance.options.headers if given is None else HeaderShape(given)


def _positions(cursor: str, pointer: str) -> dict[Partition, int]:
    if not cursor:
        return {}
    try:
        return positions_in(cursor)
    except CursorError as error:
        raise invalid(pointer, f"not the id of an event: {error}") from None
