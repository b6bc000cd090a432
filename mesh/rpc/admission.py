"""Refuses callers whose certificate does not allow the call, at a server that has no other wrapper of its calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import structlog
from google.protobuf.message import Message

from mesh.rpc.errors import RpcError
from mesh.rpc.method_access import PACKAGE
from mesh.rpc.principals import Principal, principal_of

log = structlog.get_logger(__name__)


class Admission(grpc.aio.ServerInterceptor):
    """For methods of mesh.v1 that stream both ways; health and reflection answer everybody."""

    def __init__(self, on_refusal: Callable[[str], None]) -> None:
        """`on_refusal` gets the method of each refused call."""
        self._on_refusal = on_refusal

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None or not details.method.startswith(PACKAGE):
            return handler
        return handler._replace(stream_stream=self._admitted(details.method, handler.stream_stream))

    def _admitted(self, method: str, behaviour: Any) -> Any:
        async def call(requests: Any, context: Any) -> AsyncIterator[Message]:
            try:
                admissible = admitted(principal_of(context), method, requests)
                async for message in behaviour(admissible, context):
                    yield message
            except RpcError as error:
                self._on_refusal(method)
                log.warning("a caller is refused", method=method, peer=context.peer(), reason=error.message)
                await context.abort(error.code, error.message)

        return call


def admitted(principal: Principal | None, method: str, requests: Any) -> Any:
    """A request, or a stream of requests, as far as the principal may make them. RpcError at the first other one.

    Without a principal, nobody is asked who calls.
    """
    if principal is None:
        return requests
    principal.admit(method)
    if isinstance(requests, Message):
        principal.admit_message(requests)
        return requests
    return _each_admitted(principal, requests)


async def _each_admitted(principal: Principal, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
    async for message in requests:
        principal.admit_message(message)
        yield message
