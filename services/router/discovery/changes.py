"""Changes that clients of gateways make by Kafka's tools: the router passes each one on to control."""

from __future__ import annotations

from typing import Any, Final

import grpc.aio

from mesh.rpc import kafka_changes, kafka_changes_grpc
from mesh.rpc.principals import principal_of
from mesh.rpc.replicas import Replicas
from mesh.rpc.strangers import refuse_strangers
from mesh.rpc.tls import RpcTls

NAME: Final = kafka_changes.DESCRIPTOR.services_by_name["GatewayChangeService"].full_name
TIMEOUT_S: Final = 10.0
"""For control's answer, if the gateway leaves as much time."""
MARGIN_S: Final = 0.5
"""So long before the gateway's own bound the router answers."""


class GatewayChangeService(kafka_changes_grpc.GatewayChangeServiceServicer):
    """One call of control for each call of a gateway; control's error is the gateway's. `close` in the end."""

    def __init__(self, addresses: tuple[str, ...], tls: RpcTls | None = None) -> None:
        self._addresses = addresses
        self._tls = tls
        self._control: Replicas | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serves the calls that come to this server."""
        add: Any = kafka_changes_grpc.add_GatewayChangeServiceServicer_to_server
        add(self, server)

    async def close(self) -> None:
        if self._control is not None:
            await self._control.close()

    async def ChangeByGateway(  # noqa: N802  (the name in the contract)
        self, request: kafka_changes.KafkaChangeRequest, context: Any
    ) -> kafka_changes.KafkaChangeResponse:
        if request.HasField("set_user"):
            refuse_strangers(context)
        caller = principal_of(context)
        if caller is not None:
            request.gateway = caller.name
        given = context.time_remaining()
        timeout = TIMEOUT_S if given is None else max(MARGIN_S, min(TIMEOUT_S, given - MARGIN_S))
        if self._control is None:
            self._control = Replicas(self._addresses, self._tls)
        stub: Any = kafka_changes_grpc.KafkaChangeServiceStub(self._control)
        try:
            answer: kafka_changes.KafkaChangeResponse = await stub.ChangeByKafka(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
            raise AssertionError("abort raises") from None
        return answer
