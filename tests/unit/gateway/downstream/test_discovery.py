"""Orders of a router, carried out and answered: a scripted router on a real gRPC connection."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from mesh import durations
from mesh.routing import RoutingTable
from mesh.routing.codec import table_to_proto
from mesh.rpc import admin, discovery, discovery_grpc, routing, topic_moves
from services.gateway.downstream import last_table
from services.gateway.downstream.awaited import Awaited
from services.gateway.downstream.discovery import Discovery
from services.gateway.downstream.received_tables import ReceivedTables
from services.gateway.requests.records import producer_memory
from services.gateway.requests.records.producer_memory import LastWrite
from services.gateway.requests.records.seams import seam_of
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import mint_producer_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_order import gated, produce, written
from tests.unit.gateway.scripted_broker import ScriptedBroker
from tests.unit.gateway.wire.records import batch

HELD, APPLIED = admin.MEMBER_PHASE_HELD, admin.MEMBER_PHASE_APPLIED


class ScriptedRouter(discovery_grpc.DiscoveryServiceServicer):
    """Sends what the test puts into `orders`, keeps what members say."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[discovery.WatchResponse | None] = asyncio.Queue()
        self.said: list[discovery.WatchRequest] = []
        self.has_ack = threading.Event()
        self.watches = 0

    async def Watch(
        self, request_iterator: AsyncIterator[discovery.WatchRequest], context: object
    ) -> AsyncIterator[discovery.WatchResponse]:
        self.watches += 1

        async def listen() -> None:
            async for request in request_iterator:
                self.heard(request)

        listening = asyncio.create_task(listen())
        try:
            while (order := await self.orders.get()) is not None:
                yield order
        finally:
            listening.cancel()

    def heard(self, request: discovery.WatchRequest) -> None:
        self.said.append(request)
        if request.WhichOneof("kind") == "ack":
            self.has_ack.set()

    def end(self) -> None:
        """The watch is over when what was ordered has been sent."""
        self.orders.put_nowait(None)

    def apply(self, table: RoutingTable | routing.RoutingTable) -> None:
        message = table_to_proto(table) if isinstance(table, RoutingTable) else table
        self.orders.put_nowait(discovery.WatchResponse(apply=message))

    def hold(self, table: RoutingTable, hold_ms: int = 5000) -> None:
        order = discovery.HoldOrder(table=table_to_proto(table), timeout=durations.of_ms(hold_ms))
        self.orders.put_nowait(discovery.WatchResponse(hold=order))

    @property
    def hellos(self) -> list[discovery.Hello]:
        return [request.hello for request in self.said if request.WhichOneof("kind") == "hello"]

    @property
    def acks(self) -> list[tuple[int, int]]:
        return [(r.ack.revision, r.ack.phase) for r in self.said if r.WhichOneof("kind") == "ack"]

    @property
    def nacks(self) -> list[tuple[int, str]]:
        return [(r.nack.revision, r.nack.reason) for r in self.said if r.WhichOneof("kind") == "nack"]


@asynccontextmanager
async def serving(router: ScriptedRouter) -> AsyncIterator[str]:
    server = grpc.aio.server()
    discovery_grpc.add_DiscoveryServiceServicer_to_server(router, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.fixture
async def router(stage: Stage, tmp_path: Path) -> AsyncIterator[ScriptedRouter]:
    """The stage's gateway watches this router; the first address of its list is dead."""
    scripted = ScriptedRouter()
    async with serving(scripted) as address, watching(stage, address, tmp_path):
        await until(lambda: scripted.said)
        yield scripted


def watch_of(stage: Stage, routers: tuple[str, ...], state_dir: Path) -> Discovery:
    mesh, connections = stage.gateway.mesh, stage.gateway.connections
    return Discovery("g1", "127.0.0.1:1", routers, state_dir, mesh, connections, Awaited(state_dir, "g1"))


@asynccontextmanager
async def watching(
    stage: Stage, router: str, state_dir: Path, held: RoutingTable | None = None
) -> AsyncIterator[Discovery]:
    addresses = ("127.0.0.1:1", router)
    watch = watch_of(stage, addresses, state_dir)
    if held is not None:
        watch.resume_hold(held)
    task = asyncio.create_task(watch.run())
    yield watch
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def error_of(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def written_to(cluster: ScriptedBroker) -> list[str]:
    return [topic.name for request in cluster.requests(ApiKey.PRODUCE) for topic in request.topic_data]


async def test_says_hello_with_its_name_and_revision(router: ScriptedRouter) -> None:
    hello = router.said[0].hello
    assert (hello.member.name, hello.member.kind, hello.revision) == ("members/g1", admin.MEMBER_KIND_GATEWAY, 1)


async def test_names_its_process_at_each_watch_and_another_one_at_each_start(
    router: ScriptedRouter, stage: Stage, tmp_path: Path
) -> None:
    def processes(scripted: ScriptedRouter) -> list[str]:
        return [request.hello.member.process for request in scripted.said if request.HasField("hello")]

    router.end()
    await until(lambda: len(processes(router)) == 2)
    later = ScriptedRouter()
    async with serving(later) as address, watching(stage, address, tmp_path):
        await until(lambda: later.said)
    first, second = {*processes(router)}, {*processes(later)}
    assert (len(first), len(second), len(first | second), "" in first | second) == (1, 1, 2, False)


async def test_a_table_is_run_kept_on_disk_and_acknowledged(
    router: ScriptedRouter, stage: Stage, tmp_path: Path
) -> None:
    table = stage.table(2, apples="c2")
    router.apply(table)
    await until(lambda: router.acks)
    assert router.acks == [(2, APPLIED)]
    assert stage.gateway.mesh.table == table
    await until(lambda: last_table.load(tmp_path) == table)


async def test_a_table_is_acknowledged_when_it_is_on_disk(
    router: ScriptedRouter, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that is killed then, and starts again without a router, does not serve the table before."""
    save, was_told_before = last_table.save_unless_older, list[bool]()

    def slow(state_dir: Path, revision: int, encoded: Sequence[bytes]) -> None:
        was_told_before.append(router.has_ack.wait(0.5))
        save(state_dir, revision, encoded)

    monkeypatch.setattr(last_table, "save_unless_older", slow)
    router.apply(stage.table(2, apples="c2"))
    await until(lambda: router.acks)
    assert (router.acks, was_told_before) == ([(2, APPLIED)], [False])
    assert last_table.load(tmp_path) == stage.table(2, apples="c2")


async def test_a_table_that_cannot_be_served_is_refused_with_the_reason(router: ScriptedRouter, stage: Stage) -> None:
    unreadable = table_to_proto(stage.table(2, apples="c2"))
    unreadable.rule_versions[0].rule.match.topic_regex = "("
    secured = table_to_proto(stage.table(3, apples="c2"))
    secured.clusters[0].spec.producer_config.update({"security.protocol": "SSL", "ssl.crl.location": "/crl"})
    router.apply(unreadable)
    router.apply(secured)
    await until(lambda: len(router.nacks) == 2)
    assert [revision for revision, _ in router.nacks] == [2, 3]
    assert "RE2" in router.nacks[0][1]
    assert "'c1'" in router.nacks[1][1]
    assert stage.gateway.mesh.table.revision == 1


async def test_hold_then_switch(router: ScriptedRouter, stage: Stage) -> None:
    table = stage.table(2, apples="c2")
    router.hold(table)
    await until(lambda: router.acks)
    assert router.acks == [(2, HELD)]
    assert stage.gateway.mesh.table.revision == 1
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=2)))
    await until(lambda: len(router.acks) == 2)
    assert router.acks[1] == (2, APPLIED)
    assert stage.gateway.mesh.table == table
    assert stage.gateway.mesh.hold is None


async def test_the_producers_that_come_with_a_switch_are_known_as_soon_as_the_table_is(
    router: ScriptedRouter, stage: Stage
) -> None:
    before, after = stage.table(1, apples="c1"), stage.table(2, apples="c2")
    moved = RoutingTable(2, after.clusters.values(), [replace(before.versions[0], until_revision=2), *after.versions])
    router.hold(moved)
    await until(lambda: router.acks)
    producers = topic_moves.TopicMoveProducers(topic="apples", source_cluster="c1", source_topic="apples")
    producers.partitions.add(partition=0).producers.add(producer_id=7, epoch=1, sequence=9, timestamp_ms=5)
    switch = discovery.SwitchOrder(revision=2, producers=producers)
    router.orders.put_nowait(discovery.WatchResponse(switch=switch))
    await until(lambda: len(router.acks) == 2)
    route = stage.gateway.mesh.table.route("apples")
    assert route is not None and route.before is not None
    key = seam_of("apples", 0, route, route.before)
    assert stage.gateway.mesh.memory.seams.last_write(key, 7) == LastWrite(1, 9, 5)


async def left_unanswered(cluster: ScriptedBroker, client: RawClient, topic: str) -> float:
    """The cluster ends the connection at a batch, and the producer hears that. Returns the time before the batch."""

    def cut(_header: RequestHeader, _message: ProduceRequest) -> None:
        for connection in cluster.connections:
            connection.transport.abort()

    cluster.scripts[ApiKey.PRODUCE] = cut
    records = batch(producer_id=mint_producer_id(7), epoch=0, sequence=0)
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])]
    before = asyncio.get_running_loop().time()
    client.send(ProduceRequest(None, -1, 1000, data), 9)
    assert error_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return before


async def test_held_is_said_when_the_old_cluster_has_had_time_to_store_what_has_no_answer(
    router: ScriptedRouter, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer may repeat the batch by another gateway, which asks the old cluster right after the switch."""
    monkeypatch.setattr(producer_memory, "SETTLED_SECONDS", 1.0)
    since = await left_unanswered(stage.c1, await stage.connect(), "apples")
    router.hold(stage.table(2, apples="c2", bananas="c2"))
    await until(lambda: router.acks)
    assert router.acks == [(2, HELD)]
    assert asyncio.get_running_loop().time() > since + 0.9


async def test_held_does_not_wait_for_batches_of_topics_that_stay(
    router: ScriptedRouter, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_memory, "SETTLED_SECONDS", 3600.0)
    await left_unanswered(stage.c1, await stage.connect(), "apples")
    router.hold(stage.table(2, apples="c1", bananas="c1"), hold_ms=60_000)
    await until(lambda: router.acks, within_s=15)
    assert router.acks == [(2, HELD)]


async def test_after_held_a_moving_topic_is_refused_until_the_log_says_how_the_move_ended(
    router: ScriptedRouter, stage: Stage
) -> None:
    for cluster in (stage.c1, stage.c2):
        cluster.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    router.hold(stage.table(2, apples="c2", bananas="c2"), hold_ms=1_000)
    await until(lambda: router.acks)
    client.send(produce("apples"), 9)
    assert error_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    client.send(produce("bananas"), 9)
    assert error_of(await client.answer(ProduceResponse)) == ErrorCode.NONE
    assert [written_to(cluster) for cluster in (stage.c1, stage.c2)] == [[], ["bananas"]]
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=2)))
    await until(lambda: len(router.acks) == 2)
    client.send(produce("apples"), 9)
    assert error_of(await client.answer(ProduceResponse)) == ErrorCode.NONE
    assert [written_to(cluster) for cluster in (stage.c1, stage.c2)] == [[], ["bananas", "apples"]]


async def test_a_gateway_that_starts_again_after_held_refuses_the_moving_topic(stage: Stage, tmp_path: Path) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    scripted = ScriptedRouter()
    async with serving(scripted) as address, watching(stage, address, tmp_path):
        scripted.hold(stage.table(2, apples="c2"))
        await until(lambda: scripted.acks == [(2, HELD)])
    stage.gateway.mesh.end_hold()  # the process is gone, and with it what it knew
    held = last_table.load_held(tmp_path)
    assert held is not None
    client, scripted = await stage.connect(), ScriptedRouter()
    async with serving(scripted) as address, watching(stage, address, tmp_path, held):
        client.send(produce("apples"), 9)
        assert error_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: scripted.said)
        assert scripted.said[0].hello.held_revision == 2
        scripted.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
        await until(lambda: stage.gateway.mesh.hold is None)
        client.send(produce("apples"), 9)
        assert error_of(await client.answer(ProduceResponse)) == ErrorCode.NONE
        await until(lambda: last_table.load_held(tmp_path) is None)


async def test_held_is_not_said_where_the_promise_cannot_be_kept_on_disk(
    router: ScriptedRouter, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state_dir: Path, revision: int, encoded: bytes) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(last_table, "save_held", full)
    router.hold(stage.table(2, apples="c2"))
    await until(lambda: router.nacks)
    assert "no space left" in router.nacks[0][1]
    assert not router.acks


async def test_a_hold_that_is_not_complete_in_time_is_released_and_a_late_switch_counts(
    router: ScriptedRouter, stage: Stage
) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client = await stage.connect()
    client.send(produce("apples"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    router.hold(stage.table(2, apples="c2"), hold_ms=50)
    await until(lambda: stage.gateway.mesh.hold)
    await until(lambda: stage.gateway.mesh.hold is None)
    assert (stage.gateway.mesh.table.revision, router.acks) == (1, [])
    gate.set()
    await client.answer(ProduceResponse)
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=2)))
    await until(lambda: router.acks)
    assert router.acks == [(2, APPLIED)]
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=9)))
    await until(lambda: router.nacks)
    assert router.nacks[0][0] == 9


async def test_a_table_that_moves_topics_without_a_hold_waits_for_the_old_answers(
    router: ScriptedRouter, stage: Stage
) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    stage.c2.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    client.send(produce("apples", b"old"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    router.apply(stage.table(2, apples="c2", bananas="c2"))
    await until(lambda: stage.gateway.mesh.hold)
    client.send(produce("apples", b"new"), 9)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 2)
    assert (router.acks, stage.c2.requests(ApiKey.PRODUCE)) == ([], [])
    gate.set()
    for _ in range(2):
        await client.answer(ProduceResponse)
    await until(lambda: router.acks)
    assert router.acks == [(2, APPLIED)]
    assert len(stage.c1.requests(ApiKey.PRODUCE)) == len(stage.c2.requests(ApiKey.PRODUCE)) == 1


async def test_the_next_order_does_not_wait_for_old_answers(router: ScriptedRouter, stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: None
    client = await stage.connect()
    client.send(produce("apples"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    router.hold(stage.table(2, apples="c2"))  # of a rollout that the other gateways have already acknowledged
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=2)))
    await until(lambda: stage.gateway.mesh.hold)
    router.apply(stage.table(3, apples="c2"))
    router.apply(stage.table(4, apples="c2"))
    await until(lambda: len(router.acks) == 3)
    assert router.acks == [(2, APPLIED), (3, APPLIED), (4, APPLIED)]
    assert (stage.gateway.mesh.table.revision, stage.gateway.mesh.hold) == (4, None)


async def test_a_hold_that_is_given_up_is_released(router: ScriptedRouter, stage: Stage) -> None:
    router.hold(stage.table(2, apples="c2"))
    await until(lambda: stage.gateway.mesh.hold)
    router.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
    await until(lambda: stage.gateway.mesh.hold is None)
    assert stage.gateway.mesh.table.revision == 1


async def test_a_fault_of_ours_does_not_end_the_watch(
    router: ScriptedRouter, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(keeper: last_table.TableKeeper, table: RoutingTable) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(last_table.TableKeeper, "keep", broken)
        router.apply(stage.table(2, apples="c2"))
        await until(lambda: stage.gateway.mesh.table.revision == 2)
    await until(lambda: router.watches == 2)
    router.apply(stage.table(3, apples="c2"))
    await until(lambda: stage.gateway.mesh.table.revision == 3)


async def test_the_last_word_is_goodbye_and_no_order_is_carried_out_after_it(stage: Stage, tmp_path: Path) -> None:
    scripted = ScriptedRouter()
    async with serving(scripted) as address:
        watch = watch_of(stage, (address,), tmp_path)
        watching = asyncio.create_task(watch.run())
        scripted.apply(stage.table(2, apples="c2"))
        await until(lambda: scripted.acks)
        watch.follow_no_more()
        scripted.apply(stage.table(3, apples="c1"))
        leaving = asyncio.create_task(watch.say_goodbye())
        await until(lambda: scripted.said[-1].WhichOneof("kind") == "goodbye")
        scripted.end()
        await leaving
        await watching  # it looks for no other router
    assert scripted.watches == 1
    assert (scripted.acks, stage.gateway.mesh.table.revision) == ([(2, APPLIED)], 2)


async def test_before_the_goodbye_the_disk_says_that_topics_may_move_without_this_gateway(
    stage: Stage, tmp_path: Path
) -> None:
    """A router that hears the goodbye after all makes control move topics, whether its answer arrives or not."""
    awaited, awaited_at_goodbye = Awaited(tmp_path, "g1"), list[bool]()

    class Frozen(ScriptedRouter):
        """It answers nothing, the goodbye included."""

        def heard(self, request: discovery.WatchRequest) -> None:
            super().heard(request)
            if request.HasField("goodbye"):
                awaited_at_goodbye.append(bool(awaited))

    scripted = Frozen()
    async with serving(scripted) as address:
        watch = watch_of(stage, (address,), tmp_path)
        watching = asyncio.create_task(watch.run())
        scripted.apply(stage.table(2, apples="c2"))
        await until(lambda: scripted.acks)
        assert awaited
        watch.follow_no_more()
        await watch.say_goodbye()
        assert (awaited_at_goodbye, bool(awaited)) == ([False], False)
        scripted.end()
        await watching


async def test_without_a_router_there_is_nobody_to_say_goodbye_to(stage: Stage, tmp_path: Path) -> None:
    """Control waits for this gateway, so no topic moves, and the next start may do without a router."""
    awaited = Awaited(tmp_path, "g1")
    awaited.write()
    watch = watch_of(stage, (), tmp_path)
    watch.follow_no_more()
    await watch.say_goodbye()
    assert awaited


async def test_a_goodbye_that_was_not_sent_leaves_the_disk_as_before(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The router is lost just then."""
    awaited, scripted, loop = Awaited(tmp_path, "g1"), ScriptedRouter(), asyncio.get_running_loop()
    removed, remove = asyncio.Event(), Awaited.remove

    def slow(self: Awaited) -> None:
        remove(self)
        loop.call_soon_threadsafe(removed.set)
        assert router_is_lost.wait(15)

    monkeypatch.setattr(Awaited, "remove", slow)
    router_is_lost = threading.Event()
    async with serving(scripted) as address:
        watch = watch_of(stage, (address,), tmp_path)
        watching = asyncio.create_task(watch.run())
        scripted.apply(stage.table(2, apples="c2"))
        await until(lambda: scripted.acks)
        watch.follow_no_more()
        leaving = asyncio.create_task(watch.say_goodbye())
        await removed.wait()
        assert not awaited
        scripted.end()
        await watching
        router_is_lost.set()
        await leaving
    assert awaited
    assert not any(said.HasField("goodbye") for said in scripted.said)


async def test_no_goodbye_is_said_where_the_disk_cannot_say_it(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Awaited) -> None:
        raise OSError("the disk is gone")

    scripted = ScriptedRouter()
    async with serving(scripted) as address, watching(stage, address, tmp_path) as watch:
        scripted.apply(stage.table(2, apples="c2"))
        await until(lambda: scripted.acks)
        monkeypatch.setattr(Awaited, "remove", broken)
        await watch.say_goodbye()
        scripted.apply(stage.table(3, apples="c2"))
        await until(lambda: scripted.acks[1:])
        assert not any(said.HasField("goodbye") for said in scripted.said)


async def test_a_table_that_the_disk_refuses_leaves_no_older_table_to_start_with(
    router: ScriptedRouter, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state_dir: Path, revision: int, encoded: bytes) -> None:
        raise OSError("no space left on device")

    awaited = Awaited(tmp_path, "g1")
    router.apply(stage.table(2, apples="c2"))
    await until(lambda: router.acks == [(2, APPLIED)])
    assert awaited
    with monkeypatch.context() as patch:
        patch.setattr(last_table, "save_unless_older", full)
        router.apply(stage.table(3, apples="c1"))
        await until(lambda: router.acks[1:] == [(3, APPLIED)])
        assert not awaited
    router.apply(stage.table(4, apples="c1"))
    await until(lambda: router.acks[2:] == [(4, APPLIED)])
    assert awaited


async def test_the_table_of_an_unfinished_move_is_a_first_table_too(stage: Stage, tmp_path: Path) -> None:
    """The gateway has said HELD and goodbye. The move was given up while the gateway was away."""
    scripted, held = ScriptedRouter(), stage.table(2, apples="c2")
    async with serving(scripted) as address, watching(stage, address, tmp_path, held) as watch:
        scripted.apply(stage.gateway.mesh.table)
        scripted.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
        await until(lambda: stage.gateway.mesh.hold is None)
        assert watch.first_table.is_set()


async def test_connected_clients_are_reported(router: ScriptedRouter, stage: Stage) -> None:
    reports = [r.clients for r in router.said if r.WhichOneof("kind") == "clients"]
    await until(lambda: any(r.WhichOneof("kind") == "clients" for r in router.said))
    await stage.connect()
    await until(lambda: any(r.clients.total == 1 for r in router.said if r.WhichOneof("kind") == "clients"))
    assert reports == [] or reports[0].total == 0


async def test_a_table_is_tried_by_some_clients_and_how_their_requests_end_is_told(
    router: ScriptedRouter, stage: Stage
) -> None:
    tried = discovery.CanaryOrder(table=table_to_proto(stage.table(2)), permille=1000)  # apples live nowhere by it
    stage.gateway.mesh.run_table(stage.table(1, apples="c1"))
    router.orders.put_nowait(discovery.WatchResponse(canary=tried))
    await until(lambda: router.acks)
    assert router.acks == [(2, admin.MEMBER_PHASE_TRYING)]
    assert stage.gateway.mesh.table.revision == 1
    client = await stage.connect()
    await client.ask(MetadataRequest([MetadataRequestTopic(name="apples")]), 4, MetadataResponse)

    def canaries() -> list[admin.RequestCounts]:
        return [said.clients.canary_requests for said in router.said if said.clients.canary_requests.answered]

    await until(canaries)
    router.orders.put_nowait(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=2)))
    await until(lambda: router.acks[1:])
    assert router.acks[1:] == [(2, APPLIED)]
    assert stage.gateway.mesh.tables.canary is None


async def test_a_canary_that_is_given_up_or_whose_router_is_lost_is_over(router: ScriptedRouter, stage: Stage) -> None:
    tables = stage.gateway.mesh.tables
    canary = discovery.WatchResponse(
        canary=discovery.CanaryOrder(table=table_to_proto(stage.table(2, apples="c2")), permille=500)
    )
    router.orders.put_nowait(canary)
    await until(lambda: tables.canary is not None)
    router.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
    await until(lambda: tables.canary is None)
    router.orders.put_nowait(canary)
    await until(lambda: tables.canary is not None)
    router.end()
    await until(lambda: tables.canary is None)
    assert tables.in_force.revision == 1


async def test_of_tables_that_come_faster_than_the_disk_takes_them_the_last_is_kept(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    save, begun, go_on = last_table.save_unless_older, threading.Event(), threading.Event()

    def slow(state_dir: Path, revision: int, encoded: Sequence[bytes]) -> None:
        begun.set()
        assert go_on.wait(15)
        written.append(revision)
        save(state_dir, revision, encoded)

    monkeypatch.setattr(last_table, "save_unless_older", slow)
    kept = Awaited(tmp_path / "kept", "g1")
    keeper = last_table.TableKeeper(tmp_path / "kept", kept, ReceivedTables().encoded)
    keeper.keep(stage.table(2))
    await until(begun.is_set)
    for revision in (3, 4, 5):
        keeper.keep(stage.table(revision))
    go_on.set()
    await until(lambda: written == [2, 5])
    await until(lambda: last_table.load(tmp_path / "kept") == stage.table(5))
