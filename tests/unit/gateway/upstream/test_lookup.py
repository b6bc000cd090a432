"""Names of hosts: a dead DNS server delays the cluster of its zone, and no other."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mesh.routing import UpstreamCluster
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.brokers import UpstreamLimits
from services.gateway.upstream.cluster import Cluster
from tests.fixtures.waiting import WITHIN_S
from tests.unit.gateway.scripted_broker import broker

THREADS_OF_THE_LOOP = min(32, (os.cpu_count() or 1) + 4)
"""asyncio itself looks names up in so many threads."""


@pytest.fixture
def dead_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lookups of `*.dead.test` do not end before the test does."""
    over, resolve = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *args: Any, **kwargs: Any) -> Any:
        if host.endswith(".dead.test"):
            over.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield
    over.set()


def cluster(name: str, *servers: str, connect_timeout_s: float) -> Cluster:
    limits = UpstreamLimits(connect_timeout_s=connect_timeout_s, request_timeout_s=30.0)
    return Cluster(UpstreamCluster(name, servers, 1), limits, AnswerRoom(1 << 30), lambda: None)


@pytest.mark.usefixtures("dead_zone")
async def test_a_cluster_whose_names_nobody_answers_for_delays_no_other() -> None:
    async with broker({}) as running:
        servers = [f"kafka-{number}.dead.test:9092" for number in range(THREADS_OF_THE_LOOP + 1)]
        dead = cluster("dead", *servers, connect_timeout_s=0.05)
        living = cluster("living", f"localhost:{running.port}", connect_timeout_s=30.0)
        try:
            async with asyncio.timeout(WITHIN_S):
                dead.start()
                await dead.attempted.wait()
                living.start()
                await living.attempted.wait()
            assert dead.knowledge.down is not None
            assert living.knowledge.down is None
        finally:
            await asyncio.gather(dead.stop(), living.stop())
