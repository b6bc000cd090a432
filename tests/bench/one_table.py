"""A router that sends one table and has no other news: the gateways of a bench hear from a router, as in production.

The threads of gRPC make each system call of a process dearer, by 0.06 us here. So a bench of gateways without a router
would promise too much, and would count these threads as a cost of whatever starts the first one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from mesh.routing import RoutingTable
from mesh.routing.codec import table_to_proto
from mesh.rpc import discovery, discovery_grpc

MOST_WATCHES = 4
STOP_S = 5.0


class _OneTable(discovery_grpc.DiscoveryServiceServicer):
    def __init__(self, table: RoutingTable) -> None:
        self._table = table_to_proto(table)
        self.ended = threading.Event()

    def Watch(
        self, request_iterator: Iterator[discovery.WatchRequest], context: grpc.ServicerContext
    ) -> Iterator[discovery.WatchResponse]:
        yield discovery.WatchResponse(apply=self._table)
        self.ended.wait()


@contextmanager
def router_of(table: RoutingTable) -> Iterator[str]:
    """Its address."""
    router, server = _OneTable(table), grpc.server(ThreadPoolExecutor(MOST_WATCHES))
    discovery_grpc.add_DiscoveryServiceServicer_to_server(router, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        router.ended.set()
        server.stop(STOP_S).wait()
