"""A whole gateway before two scripted brokers: apples live on c1, bananas on c2."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mesh.lifecycle import Lifecycle
from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from mesh.routing.policies import Policies
from mesh.rpc import stitches
from mesh.stitches import LogPart, StitchedLog
from mesh.stitches.codec import log_to_proto
from services.gateway.downstream import last_table
from services.gateway.downstream.gateway import Gateway
from services.gateway.requests.records import producer_memory
from services.gateway.settings import GatewaySettings
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.scripted_broker import ScriptedBroker, broker

MAX_FRAME_MIB = 4
MAX_REQUESTS = 20


@dataclass
class Stage:
    """The gateway, its brokers and its clients."""

    gateway: Gateway
    c1: ScriptedBroker
    c2: ScriptedBroker
    connect: Callable[[], Awaitable[RawClient]]
    logs: tuple[StitchedLog, ...] = ()
    """The stitched logs of its tables."""

    def table(self, revision: int, **topics: str) -> RoutingTable:
        """A table with these topics and their clusters: `table(2, apples="c2")`."""
        clusters = [
            UpstreamCluster(name, (found.address,), ordinal)
            for ordinal, (name, found) in enumerate((("c1", self.c1), ("c2", self.c2)), start=1)
        ]
        rules = [
            RuleVersion(ForwardingRule(topic, ExactName(topic), cluster), float(rank), revision)
            for rank, (topic, cluster) in enumerate(topics.items())
        ]
        policy = stitches.StitchPolicy(logs=map(log_to_proto, self.logs), revision=revision) if self.logs else None
        return RoutingTable(revision, clusters, rules, policies=Policies(stitch_policy=policy))

    def stitch_apples(self, partitions: int) -> None:
        """`apples` were on c2 up to offset 30, and are on c1 from its offset 23 on."""
        old = LogPart("c2", "apples", 1, (0,) * partitions, (0,) * partitions)
        present = LogPart("c1", "apples", 1, (30,) * partitions, (7,) * partitions)
        self.logs = (StitchedLog("apples", (old, present)),)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as found:
        yield found


@asynccontextmanager
async def staged(folder: Path, **settings: Any) -> AsyncIterator[Stage]:
    values: dict[str, Any] = {
        "name": "gateway-test",
        "listen": ("127.0.0.1:0",),
        "state_dir": folder,
        "max_frame_mib": MAX_FRAME_MIB,
        "max_requests_per_connection": MAX_REQUESTS,
        "drain_timeout_s": 0,
        **settings,
    }
    topics = {"apples": 2, "bananas": 2}
    clients: list[RawClient] = []
    async with broker(topics) as c1, broker(topics) as c2:
        gateway = Gateway(GatewaySettings(**values), Lifecycle())

        async def connect() -> RawClient:
            clients.append(await RawClient.connect(gateway.port))
            return clients[-1]

        found = Stage(gateway, c1, c2, connect)
        last_table.save(folder, found.table(1, apples="c1", bananas="c2"))
        await gateway.start()
        yield found
        for client in clients:
            client.close()
        with patch.object(producer_memory, "SETTLED_SECONDS", 0.0):  # nobody asks any more what was stored
            await gateway.stop()


SLOW = ("services.gateway.upstream.seats.SLOW_S", "services.gateway.upstream.shared.SLOW_S")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy everybody waits: nobody leaves a shared connection for that."""
    for name in SLOW:
        monkeypatch.setattr(name, 60.0)
