"""A gRPC server as every service of the mesh runs it: limits, keepalive, mutual TLS, reflection and health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as aio_health
from grpc_reflection.v1alpha import reflection

from mesh.rpc.channels import LIMITS
from mesh.rpc.tls import RpcTls

OPTIONS = (
    *LIMITS,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.so_reuseport", 0),
)
"""Options of every server: pings of idle neighbours are welcome, and a taken port is an error."""
MAX_CONCURRENT_RPCS = 50_000
"""Members keep streams open: two for each gateway at a router, three for each of 10,000 sidecars at control.

So operators find room behind them all. A stream takes about 36 KB.
"""


class RpcServer:
    """A grpc.aio server; `services` maps names (`mesh.v1.RuleService`) to functions that add the servicer."""

    def __init__(
        self,
        address: str,
        services: Mapping[str, Callable[[grpc.aio.Server], Any]],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        tls: RpcTls | None = None,
        token_address: str | None = None,
    ) -> None:
        """RpcTlsError if a file of `tls` can't be used; OSError if an address can't be listened on.

        `token_address`: for callers by TLS without a certificate.
        """
        self._server = grpc.aio.server(
            options=OPTIONS, interceptors=list(interceptors), maximum_concurrent_rpcs=MAX_CONCURRENT_RPCS
        )
        self._services = tuple(services)
        self._health = aio_health.HealthServicer()
        for add in services.values():
            add(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*self._services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, tls.server_credentials())
            if token_address is not None and tls is not None:
                address = token_address
                self.token_port = self._server.add_secure_port(address, tls.server_credentials(asks_callers=False))
        except RuntimeError as error:
            raise OSError(f"can't listen on {address}: {error}") from None

    async def start(self) -> None:
        """Serves from now on; health says NOT_SERVING until `set_serving(True)`."""
        await self.set_serving(False)
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """Sets the answer of the health service, for the server as a whole and for each service."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._services):
            await self._health.set(name, status)

    async def stop(self, grace: float = 5.0) -> None:
        """Health says NOT_SERVING; running calls get `grace` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
