"""CPU of our own code for one Produce with one leader, without sockets: `python -m tests.bench.gateway.hot_path`.

Prints microseconds for each request: arrival, plan, call, answer, each as in the running gateway; what is missing are
the system calls. By its plan, and straight on as all but the first; with its traffic counted, and without.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from mesh.traffic.counting import Counts
from mesh.traffic.sketches import LatencySketch
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.mesh import ClientLimits, Mesh
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, TopicKnowledge
from services.gateway.requests.memory import Memory
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import Call, Lane
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.topic_names import TopicNames
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.connection import BrokerConnection, Settle
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.wire.frames import SIZE_BYTES, encode_request, encode_response
from services.gateway.wire.messages import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from services.gateway.wire.scanner import patch_correlation_id
from tests.unit.gateway.wire.records import batch

ROUNDS, REQUESTS = 5, 5000
VERSION = 9


class OneBroker(Clusters):
    """All calls go to one connection whose socket takes everything."""

    def __init__(self, connection: BrokerConnection, knowledge: ClusterKnowledge) -> None:
        self.known = {"c1": knowledge}
        self.served = {key: handler.versions for key, handler in HANDLERS.items()}
        self._connection = connection

    def follow(self, table: RoutingTable) -> None:
        """One cluster, always."""

    def incarnation(self, cluster: str) -> int:
        return 1

    def pool(self, cluster: str, broker_id: int) -> None:
        """Nobody shares."""

    def submit(
        self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle, names: TopicNames | None = None
    ) -> None:
        self._connection.submit(call, call.api_key, client_id, settle)


def measure(record_bytes: int, *, straight: bool, counted: bool) -> float:
    """Microseconds for each request, the best of some rounds; `counted`: as part of the traffic."""
    request = ProduceRequest(
        None,
        -1,
        1000,
        [TopicProduceData("apples", partition_data=[PartitionProduceData(0, batch(bytes(record_bytes)))])],
    )
    frame = memoryview(bytearray(encode_request(request, VERSION, 1, "bench")))
    done = ProduceResponse([TopicProduceResponse("apples", partition_responses=[PartitionProduceResponse(0)])])
    answer = memoryview(bytearray(encode_response(done, VERSION, 1)))
    upstream = _deaf(BrokerConnection("c1", "bench", 1 << 20, 1000))
    upstream._ready = True
    knowledge = ClusterKnowledge("c1", {1: BrokerAddress(1, "bench", 1, None)}, down=None)
    knowledge.topics["apples"] = TopicKnowledge("apples", bytes(16), (1,))
    knowledge.versions = {key: handler.versions for key, handler in HANDLERS.items()}
    traffic = ClientTraffic(Counts(LatencySketch, datetime.now(UTC)), time.perf_counter) if counted else None
    mesh = Mesh(OneBroker(upstream, knowledge), "bench", ClientLimits(), memory=Memory(traffic=traffic))
    rule = RuleVersion(ForwardingRule("r", ExactName("apples"), "c1"), 0.0, 1)
    mesh.run_table(RoutingTable(1, [UpstreamCluster("c1", ("bench:1",), 1)], [rule]))
    client = _deaf(ClientConnection(mesh, set(), Advertised("bench", 1)))
    client._lanes.connections[LaneKey(1, 1, Lane.PRODUCE)] = upstream
    if not straight:
        client._goes_straight = lambda frame: False
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REQUESTS):
            client.frame_received(frame, False)
            patch_correlation_id(answer, SIZE_BYTES, upstream._pending[0].correlation_id)
            upstream.frame_received(answer, False)
        best = min(best, time.process_time() - began)
    assert client.unanswered == 0
    return best / REQUESTS * 1e6


def _deaf(stream: Any) -> Any:
    """The stream seems open and drops what it is given."""
    stream._fd = 1_000_000
    stream.send = lambda *pieces: None
    return stream


async def main() -> None:
    for size in (200, 16_000):
        for straight in (False, True):
            alone, counted = (measure(size, straight=straight, counted=each) for each in (False, True))
            way = "straight on" if straight else "by its plan"
            print(
                f"{size:>6} B records {way}: {alone:.1f} us for each request, {counted:.1f} us with its traffic counted"
            )


if __name__ == "__main__":
    asyncio.run(main())
