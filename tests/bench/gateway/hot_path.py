"""CPU of our code for a Produce or Fetch with one leader, without sockets: `python -m tests.bench.gateway.hot_path`.

Prints microseconds for each request: arrival, plan, call, answer, each as in the running gateway; what is missing are
the system calls. By its plan, and forwarded as all but the first; with its traffic counted, and without.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from mesh.routing.policies import Policies
from mesh.rpc import acls, quotas
from mesh.rpc import tenants as pb
from mesh.tenants import Tenant
from mesh.tenants.codec import tenant_to_proto
from mesh.tracing import TracingSettings, tracer_for
from mesh.traffic.counting import Counts
from mesh.traffic.sketches import LatencySketch
from services.gateway.downstream.mesh import ClientLimits, Mesh
from services.gateway.downstream.request_tracing import RequestTracing
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, TopicKnowledge
from services.gateway.requests.memory import Memory
from services.gateway.requests.plan import Broker, Call, Lane
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.topic_names import TopicNames
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, encode_response, parse_request_header
from services.gateway.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from services.gateway.wire.primitives import INT32, INT64
from services.gateway.wire.scanner import patch_correlation_id, scan_fetch_request
from tests.bench.figures import quartiles
from tests.fixtures.collector import collector
from tests.unit.gateway.replaceable import FromClient, ToBroker, open_entrance
from tests.unit.gateway.wire.records import batch

ROUNDS, REQUESTS = 3, 2000
VERSION = 9


class OneCluster(Clusters):
    """A connection to each broker, whose socket takes everything."""

    def __init__(self, connections: Mapping[int, BrokerConnection], knowledge: ClusterKnowledge) -> None:
        self.known = {"c1": knowledge}
        self.served = {key: handler.versions for key, handler in HANDLERS.items()}
        self.answer_room = AnswerRoom(1 << 30)
        self._connections = connections

    def follow(self, table: RoutingTable) -> None:
        """One cluster, always."""

    def incarnation(self, cluster: str, lanes: Lanes) -> int:
        return 1

    def pool(self, cluster: str, broker_id: int, lanes: Lanes) -> None:
        """Nobody shares."""

    def submit(
        self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle, names: TopicNames | None = None
    ) -> None:
        broker_id = call.target.broker_id if isinstance(call.target, Broker) else 1
        self._connections[broker_id].submit(call, call.key, client_id, settle)


def measure(
    record_bytes: int,
    partitions: int = 1,
    *,
    forwarded: bool,
    counted: bool,
    policy: acls.AclPolicy | None = None,
    limits: quotas.QuotaPolicy | None = None,
    tracing: RequestTracing | None = None,
    tenants: pb.TenantPolicy | None = None,
    topic: str = "apples",
) -> float:
    """Microseconds for each Produce, the best of some rounds; `counted`: as part of the traffic. `topic`: the client's
    name for apples.
    """
    numbers, records = range(partitions), batch(bytes(record_bytes))
    data = [PartitionProduceData(number, records) for number in numbers]
    request = ProduceRequest(None, -1, 1000, [TopicProduceData(topic, partition_data=data)])
    frame = memoryview(bytearray(encode_request(request, VERSION, 1, "bench")))
    stored = [PartitionProduceResponse(number) for number in numbers]
    done = ProduceResponse([TopicProduceResponse("apples", partition_responses=stored)])
    answer = memoryview(bytearray(encode_response(done, VERSION, 1)))
    client, upstream = _stage(Lane.PRODUCE, counted=counted)
    client._tracing = client._forwarder._tracing = client._mesh.tracing = tracing
    if policy is not None or limits is not None or tenants is not None:
        table = client._mesh.table
        client._mesh.run_table(
            RoutingTable(
                2, table.clusters.values(), table.versions, table.pasts, Policies(policy, limits, tenant_policy=tenants)
            )
        )
    if not forwarded:
        client._is_forwarded = lambda header, frame, now: False

    def ask() -> None:
        client.frame_received(frame, False)
        patch_correlation_id(answer, SIZE_BYTES, upstream._pending[0].correlation_id)
        upstream.frame_received(answer, False)

    return _best(ask, client)


def measure_polls(version: int, record_bytes: int, partitions: int, *, forwarded: bool, counted: bool) -> float:
    """The same for a Fetch; from version 13 on by ids and in a session, as Kafka's own consumer asks."""
    in_session = version >= 13
    client, upstream = _stage(Lane.FETCH, counted=counted)
    if not forwarded:
        client._is_fetch_forwarded = lambda header, frame, now: False
    wanted = [FetchPartition(n, -1, 1 << 20, partition_max_bytes=1 << 20) for n in range(partitions)]
    topic = FetchTopic("", mesh_topic_id("bench", "apples")) if in_session else FetchTopic("apples")
    topic.partitions = wanted
    records = batch(bytes(record_bytes)) if record_bytes else b""
    data = [PartitionData(n, 0, 9, 9, 0, records=b"") for n in range(partitions)]
    data[0].records = records
    answer = bytearray(
        encode_response(FetchResponse(responses=[FetchableTopicResponse("apples", partitions=data)]), 12, 1)
    )
    told: list[bytes] = []
    client.send = lambda *pieces: told.append(b"".join(pieces))
    session_id, epoch = 0, 0 if in_session else -1

    def ask(message: FetchRequest) -> None:
        client.frame_received(memoryview(bytearray(encode_request(message, version, 1, "bench"))), False)
        came = memoryview(bytearray(answer))
        patch_correlation_id(came, SIZE_BYTES, upstream._pending[0].correlation_id)
        upstream.frame_received(came, False)

    def poll(topics: list[FetchTopic]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
        )

    ask(poll([topic]))
    if in_session:
        frame = told[-1]
        session_id = decode(FetchResponse, version, frame, SIZE_BYTES + 5).session_id
        epoch = 1
        ask(poll([]))
        epoch = 2
    client.send = lambda *pieces: None
    changed = [FetchTopic(topic.topic, topic.topic_id, wanted[:1])] if record_bytes else []
    request = bytearray(encode_request(poll(changed if in_session else [topic]), version, 1, "bench"))
    header = parse_request_header(request, SIZE_BYTES, len(request))
    scan = scan_fetch_request(request, version, header.body_offset, len(request))
    frame_in, came = memoryview(request), memoryview(answer)
    epoch_at = scan.waits_at + 17
    offset_at = scan.topics[0].partitions[0].start + 8 if scan.topics else 0

    def ask_again() -> None:
        nonlocal epoch
        if in_session:
            INT32.pack_into(frame_in, epoch_at, epoch)
            epoch += 1
        if record_bytes:
            INT64.pack_into(frame_in, offset_at, (1 << 20) + epoch)
        client.frame_received(frame_in, False)
        patch_correlation_id(came, SIZE_BYTES, upstream._pending[0].correlation_id)
        INT32.pack_into(came, SIZE_BYTES + 5 + 6, 0)
        upstream.frame_received(came, False)

    return _best(ask_again, client)


def measure_polls_of_several(brokers: int, record_bytes: int, partitions: int, *, forwarded: bool) -> float:
    """A Fetch as Kafka's own consumer asks, about partitions of each of several brokers. Each time one of them has
    something, in turn, and the others are left behind; with one broker it is asked in a session of its own."""
    version = 17
    client, upstreams = _stage_of(Lane.FETCH, brokers, counted=False)
    if not forwarded:
        client._is_fetch_forwarded = lambda header, frame, now: False
    every = FetchTopic("", mesh_topic_id("bench", "apples"))
    every.partitions = [FetchPartition(n, -1, 1 << 20, partition_max_bytes=1 << 20) for n in range(partitions)]
    told: list[bytes] = []
    client.send = lambda *pieces: told.append(b"".join(pieces))
    sessions = {broker_id: 100 + broker_id if partitions // brokers >= 10 else 0 for broker_id in upstreams}

    def come(broker_id: int, records: bytes, numbers: list[int]) -> None:
        upstream = upstreams[broker_id]
        parts = [PartitionData(n, 0, 9, 9, 0, records=records) for n in numbers]
        topics = [FetchableTopicResponse("apples", partitions=parts)] if parts else []
        message = FetchResponse(session_id=sessions[broker_id], responses=topics)
        came = memoryview(bytearray(encode_response(message, 12, upstream._pending[0].correlation_id)))
        upstream.frame_received(came, False)

    def ask(session_id: int, epoch: int, topics: list[FetchTopic]) -> None:
        message = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=session_id, session_epoch=epoch, topics=topics
        )
        client.frame_received(memoryview(bytearray(encode_request(message, version, 1, "bench"))), False)

    def led_by(broker_id: int) -> list[int]:
        return [n for n in range(partitions) if n % brokers == broker_id - 1]

    ask(0, 0, [every])
    for broker_id in upstreams:
        come(broker_id, b"", led_by(broker_id))
    session_id, epoch = decode(FetchResponse, version, told[-1], SIZE_BYTES + 5).session_id, 1
    for _ in range(2):
        ask(session_id, epoch, [])
        epoch += 1
        for broker_id in upstreams:
            come(broker_id, b"", [])
    client.send = lambda *pieces: None
    records = batch(bytes(record_bytes)) if record_bytes else b""
    # what the brokers say and the client asks is made before: only the gateway's own code is to be measured
    requests, answers = [], []
    for broker_id in upstreams:
        parts = [PartitionData(broker_id - 1, 0, 9, 9, 0, records=records)]
        topics = [FetchableTopicResponse("apples", partitions=parts)]
        message = FetchResponse(session_id=sessions[broker_id], responses=topics)
        answers.append((upstreams[broker_id], memoryview(bytearray(encode_response(message, 12, 1)))))
        changed = FetchTopic("", mesh_topic_id("bench", "apples"), [every.partitions[(broker_id - 2) % brokers]])
        asked = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=session_id, session_epoch=0, topics=[changed]
        )
        requests.append(memoryview(bytearray(encode_request(asked, version, 1, "bench"))))
    header = parse_request_header(requests[0], SIZE_BYTES, len(requests[0]))
    epoch_at = scan_fetch_request(requests[0], version, header.body_offset, len(requests[0])).waits_at + 17
    turn = 0

    def ask_again() -> None:
        nonlocal epoch, turn
        INT32.pack_into(requests[turn], epoch_at, epoch)
        client.frame_received(requests[turn], False)
        upstream, came = answers[turn]
        patch_correlation_id(came, SIZE_BYTES, upstream._pending[0].correlation_id)
        upstream.frame_received(came, False)
        epoch, turn = epoch + 1, (turn + 1) % brokers

    return _best(ask_again, client)


def _stage(lane: Lane, *, counted: bool) -> tuple[Any, Any]:
    """A client's connection, and that to the only broker."""
    client, upstreams = _stage_of(lane, 1, counted=counted)
    return client, upstreams[1]


def _stage_of(lane: Lane, brokers: int, *, counted: bool) -> tuple[Any, dict[int, Any]]:
    """A client's connection, and those to the brokers, which lead the partitions in turn."""
    upstreams = {n: _deaf(ToBroker("c1", "bench", 1 << 20, 1000, AnswerRoom(1 << 30))) for n in range(1, brokers + 1)}
    for upstream in upstreams.values():
        upstream._ready = True
    knowledge = ClusterKnowledge("c1", {n: BrokerAddress(n, "bench", n, None) for n in upstreams}, down=None)
    knowledge.topics["apples"] = TopicKnowledge("apples", bytes(16), tuple(1 + n % brokers for n in range(120)))
    knowledge.versions = {key: handler.versions for key, handler in HANDLERS.items()}
    traffic = ClientTraffic(Counts(LatencySketch, datetime.now(UTC)), time.perf_counter) if counted else None
    mesh = Mesh(OneCluster(upstreams, knowledge), "bench", ClientLimits(), memory=Memory(traffic=traffic))
    rule = RuleVersion(ForwardingRule("r", ExactName("apples"), "c1"), 0.0, 1)
    mesh.run_table(RoutingTable(1, [UpstreamCluster("c1", ("bench:1",), 1)], [rule]))
    client = _deaf(FromClient(mesh, set(), open_entrance("bench")))
    client._lanes.connections = {LaneKey(1, n, lane): upstream for n, upstream in upstreams.items()}
    return client, upstreams


def _best(ask: Callable[[], None], client: Any) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REQUESTS):
            ask()
        best = min(best, time.process_time() - began)
    assert client.unanswered == 0
    return best / REQUESTS * 1e6


def _deaf(stream: Any) -> Any:
    """The stream seems open and drops what it is given."""
    stream._fd = 1_000_000
    stream.send = lambda *pieces: None
    return stream


def enforced_acls(count: int) -> acls.AclPolicy:
    """A policy of so many ACLs of 1,000 principals, which lets the client write to `apples`."""

    def allow(name: str, principal: str) -> acls.Acl:
        return acls.Acl(
            resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
            resource_name=name,
            pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED,
            principal=principal,
            host="*",
            operation=acls.ACL_OPERATION_WRITE,
            permission=acls.ACL_PERMISSION_ALLOW,
        )

    others = [allow(f"team-{number}.", f"User:u{number % 1000}") for number in range(count - 1)]
    return acls.AclPolicy(mode=acls.ACL_MODE_ENFORCE, acls=[*others, allow("app", "User:ANONYMOUS")], revision=1)


def ample_quotas(count: int) -> quotas.QuotaPolicy:
    """A policy of so many quotas of bytes, that of the client so high that it never pauses."""

    def quota(user: str) -> quotas.Quota:
        entity = quotas.QuotaEntity(user=quotas.QuotaName(name=user))
        return quotas.Quota(entity=entity, key=quotas.QUOTA_KEY_PRODUCER_BYTE_RATE, value=1e12)

    return quotas.QuotaPolicy(quotas=[*map(quota, map("u{}".format, range(count - 1))), quota("ANONYMOUS")], revision=1)


def compare_policies(count: int) -> None:
    """Alternated rounds: without a policy, with ACLs that are enforced, with quotas, and with both."""
    policies = {
        "without": (None, None),
        f"{count} ACLs": (enforced_acls(count), None),
        f"{count} quotas": (None, ample_quotas(count)),
        "both": (enforced_acls(count), ample_quotas(count)),
    }
    for forwarded in (True, False):
        best: dict[str, float] = {}
        for _ in range(3 * ROUNDS):
            for name, (policy, limits) in policies.items():
                took = measure(200, forwarded=forwarded, counted=False, policy=policy, limits=limits)
                best[name] = min(best.get(name, took), took)
        way = "forwarded" if forwarded else "by its plan"
        told = ", ".join(f"{name} {took:.2f} ({took / best['without'] - 1:+.1%})" for name, took in best.items())
        print(f"   200 B records {way}, us: {told}")


def compare_tenants(count: int) -> None:
    """Alternated rounds: without tenants, beside so many tenants, and as a client of one of them."""

    def policy(member: str) -> pb.TenantPolicy:
        others = [Tenant(f"t{number}", f"t{number}.", (f"User:u{number}",)) for number in range(count - 1)]
        return pb.TenantPolicy(tenants=map(tenant_to_proto, [*others, Tenant("a", "app", (member,))]), revision=2)

    ways = {
        "without": (None, "apples"),
        f"beside {count} tenants": (policy("User:ann"), "apples"),
        "as one of a tenant": (policy("User:ANONYMOUS"), "les"),
    }
    for forwarded in (True, False):
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(5 * ROUNDS):
            for name, (tenants, topic) in ways.items():
                took[name].append(measure(200, forwarded=forwarded, counted=False, tenants=tenants, topic=topic))
        usual = median(took["without"])
        told = ", ".join(
            f"{name} {median(each):.2f} ({median(each) / usual - 1:+.1%}, {min(each):.2f} to {max(each):.2f})"
            for name, each in took.items()
        )
        print(f"   200 B records {'forwarded' if forwarded else 'by its plan'}, us: {told}")


def compare_watching() -> None:
    """Alternated rounds: with traffic counted or not, without tracing and at rates of 0 and 1 %. A real collector takes
    the spans. The time is that of all threads: spans that are sent count.
    """
    with TemporaryDirectory() as folder, collector(Path(folder)) as spans:
        ways: dict[str, tuple[bool, RequestTracing | None]] = {"neither": (False, None), "traffic": (True, None)}
        for rate in (0.0, 0.01):
            settings = TracingSettings(tracing_endpoint=spans.grpc, tracing_rate=rate, tracing_max_spans=65_536)
            tracer = tracer_for(settings, "gateway", "bench", lambda outcome, count: None)
            assert tracer is not None
            ways[f"tracing {rate:.0%}"] = False, RequestTracing(tracer)
            ways[f"traffic, tracing {rate:.0%}"] = True, RequestTracing(tracer)
        for forwarded, size in ((True, 100), (True, 1_000), (True, 16_000), (False, 100)):
            took: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(10 * ROUNDS):
                for name, (counted, tracing) in ways.items():
                    took[name].append(measure(size, forwarded=forwarded, counted=counted, tracing=tracing))
            usual = took["neither"]
            more = {name: [one - base for one, base in zip(each, usual, strict=True)] for name, each in took.items()}
            told = ", ".join(f"{name} {quartiles(each, 2)} +{quartiles(more[name], 2)}" for name, each in took.items())
            print(
                f"{size:>6} B records {'forwarded' if forwarded else 'by its plan'}, us, and more than neither: {told}"
            )


async def main() -> None:
    compare_watching()
    compare_policies(10_000)
    compare_tenants(1_000)
    for size, partitions in ((200, 1), (16_000, 1), (200, 20)):
        for forwarded in (False, True):
            alone, counted = (measure(size, partitions, forwarded=forwarded, counted=each) for each in (False, True))
            way = "forwarded" if forwarded else "by its plan"
            print(
                f"{size:>6} B records, {partitions} partitions {way}: {alone:.1f} us for each request, "
                f"{counted:.1f} us with its traffic counted"
            )
    for version, size, partitions in (
        (12, 0, 1),
        (12, 16_000, 1),
        (12, 16_000, 9),
        (17, 0, 1),
        (17, 16_000, 1),
        (17, 16_000, 9),
    ):
        for forwarded in (False, True):
            alone, counted = (
                measure_polls(version, size, partitions, forwarded=forwarded, counted=each) for each in (False, True)
            )
            way = "forwarded" if forwarded else "by its plan"
            print(
                f"Fetch v{version}, {size:>6} B, {partitions} partitions {way}: {alone:.1f} us, {counted:.1f} counted"
            )
    for brokers, partitions in ((1, 12), (1, 100), (2, 6), (3, 12), (3, 90)):
        planned, on = (
            measure_polls_of_several(brokers, 16_000, partitions, forwarded=forwarded) for forwarded in (False, True)
        )
        print(
            f"Fetch v17 of {brokers} brokers, one has 16000 B, {partitions} partitions: "
            f"by its plan {planned:.1f} us, forwarded {on:.1f} us"
        )


if __name__ == "__main__":
    asyncio.run(main())
