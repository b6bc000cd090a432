"""DiscoveryService: the gRPC side of a watch. member.py decides which orders to send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import structlog

from mesh.rpc import admin, discovery
from mesh.rpc.errors import bad_request
from services.router import metrics
from services.router.discovery.member import Hello, MemberState, ProtocolError
from services.router.discovery.orders import OrderEncoder, OrderStream, answered
from services.router.discovery.roster import Roster
from services.router.discovery.session import Ending, Session

NAME = discovery.DESCRIPTOR.services_by_name["DiscoveryService"].full_name
HELLO_TIMEOUT = 5.0
"""Seconds that a data plane may take to send Hello."""

log = structlog.get_logger(__name__)


class DiscoveryService:
    """One call of Watch for each data plane. Its orders are bytes already: data planes share them."""

    def __init__(self, roster: Roster, read_to_end: Callable[[], Awaitable[None]]) -> None:
        """`read_to_end` returns when the roster knows what the log holds now, or when the log is out of reach."""
        self._roster = roster
        self._read_to_end = read_to_end
        self._encoder = OrderEncoder()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serves the calls that come to this server, as the generated code would, without a serializer of orders."""
        orders: Any = self._watch
        read = discovery.WatchRequest.FromString
        watch: Any = grpc.stream_stream_rpc_method_handler(orders, request_deserializer=read)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, {"Watch": watch}),))

    async def _watch(self, request_iterator: Any, context: Any) -> AsyncIterator[bytes]:
        hello = await _hello(request_iterator, context)
        if hello.not_awaited:  # this router may have stood still meanwhile, and topics may have moved
            await self._read_to_end()
        session = self._roster.enter(hello.member)
        self._roster.heard(session, Hello(hello.revision, hello.member.table_format, hello.held_revision))
        log.info("data plane connected", member=hello.member.name, revision=hello.revision, peer=context.peer())
        if session.member.state is MemberState.ADMISSION:
            log.warning(
                "a gateway has a later table than the router, and gets no table yet",
                member=hello.member.name,
                runs=hello.revision,
            )
        orders = OrderStream(
            self._encoder,
            reads_deltas=hello.reads_deltas,
            reads_parts=hello.reads_parts,
            table_digest=hello.table_digest,
        )
        listening = asyncio.create_task(self._listen(session, request_iterator))
        try:
            while (order := await session.next_order()) is not None:
                for message in orders.messages(order):
                    yield message
        finally:
            listening.cancel()
            self._roster.leave(session)
            ending = session.ending
            log.info("data plane gone", member=hello.member.name, reason=ending.reason if ending else "it left")
        if ending is not None and ending.code is not grpc.StatusCode.OK:
            metrics.watches_ended.labels(ending.label).inc()
            await context.abort(ending.code, ending.reason)

    async def _listen(self, session: Session, requests: AsyncIterator[discovery.WatchRequest]) -> None:
        """Reads the member's messages; ends the session at the end of the stream."""
        left = Ending(grpc.StatusCode.OK, "left", "it left")
        try:
            async for request in requests:
                match request.WhichOneof("kind"):
                    case "ack" | "nack":
                        self._roster.heard(session, answered(request, time.time()))
                    case "clients":
                        self._roster.heard_clients(session, request.clients)
                    case "quota_parts":
                        self._roster.heard_quota_parts(session, request.quota_parts)
                    case "standby":
                        self._roster.heard_standby(session, request.standby)
                    case "goodbye":
                        self._roster.depart(session)
                    case kind:
                        due = "an ack, a nack, clients, quota_parts, standby or goodbye"
                        raise ProtocolError(f"{kind} came in the middle of a watch; due is {due}")
        except ProtocolError as error:
            left = Ending(grpc.StatusCode.FAILED_PRECONDITION, "protocol", str(error))
        except grpc.RpcError as error:
            left = Ending(grpc.StatusCode.OK, "left", f"its stream broke: {error}")
        finally:
            session.end(left)


async def _hello(requests: AsyncIterator[discovery.WatchRequest], context: Any) -> discovery.Hello:
    """The first message of a stream; anything else ends it."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT):
            first = await anext(requests)
    except (TimeoutError, StopAsyncIteration):
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {HELLO_TIMEOUT} s")
        raise
    if first.WhichOneof("kind") != "hello":
        await context.abort_with_status(bad_request("hello", "must be the first message of a watch").status())
    if not first.hello.member.name.startswith("members/"):
        error = bad_request("hello.member.name", f"{first.hello.member.name!r} is not members/{{member}}")
        await context.abort_with_status(error.status())
    if first.hello.member.kind == admin.MEMBER_KIND_UNSPECIFIED:
        await context.abort_with_status(bad_request("hello.member.kind", "must say what the member is").status())
    return first.hello
