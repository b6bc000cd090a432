"""A replay is cancelled, a transaction is aborted and an instance paused, on their pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from confluent_kafka import Producer

from mesh import durations
from mesh.rpc import instances, instances_grpc, replays
from mesh.rpc.channels import open_channel
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, Consoled
from tests.fixtures.members import certificate_of
from tests.integration.control.sidecar import Sidecar
from tests.integration.control.world import CALL, WITHIN, create_topic


async def test_a_replay_is_followed_and_cancelled(
    console: Consoled, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    """No pipeline is there, so the replay waits."""
    topic = unique_name("apples")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, topic, 1)
    await console.world.set(topic, "c1")
    spec = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic=topic)], topic=replays.ReplayToTopic(cluster="c2", source_cluster="c1")
    )
    request = replays.StartReplayRequest(spec=spec, reason="a copy", wait=durations.of_ms(1))
    started = await console.world.replays.StartReplay(request, timeout=CALL)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        page = f"/{started.name}"
        assert "State pending" in await ada.sees(page)
        assert "a copy" in await ada.sees(page)
        assert "pending" in await ada.sees("/replays?open=1")
        assert (await ada.sends(page, f"{page}/cancel", reason="not needed")).status_code == 303
        assert "State cancelled" in await ada.sees(page)
        assert "There is no replay." in await ada.sees("/replays?open=1")


async def test_an_open_transaction_is_aborted(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic, identifier = unique_name("apples"), unique_name("shop?pay")
    create_topic(kafka_c1.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap, "transactional.id": identifier})
    producer.init_transactions(WITHIN)
    producer.begin_transaction()
    producer.produce(topic, b"a record")
    producer.flush(WITHIN)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        assert identifier in await ada.sees(f"/transactions?prefix={identifier.partition('?')[0]}")
        page = f"/transactions/{identifier}".replace("?", "%3F")
        assert "State undecided" in await ada.sees(page)
        assert f"{topic} 0" in await ada.sees(page)
        assert (await ada.sends(page, f"{page}/abort", reason="it hangs")).status_code == 303
        assert "Abort it" not in await ada.sees(page)
    assert (await console.world.history())[0].transaction_end_ordered.transactional_id == identifier


async def test_an_instance_is_paused_by_an_order_that_its_sidecar_carries_out(console: Consoled) -> None:
    await console.grant("ada", OPERATOR)
    own = open_channel(f"127.0.0.1:{console.world.control.port}", certificate_of(console.authority, "sidecar", "s1"))
    console.world.instances = instances_grpc.InstanceServiceStub(own)
    sidecar = Sidecar(console.world)
    await sidecar.holds(topics=["apples"])
    name = "instances/billing.one"
    status = instances.InstanceStatus(
        name=name,
        state=instances.INSTANCE_STATE_READING,
        partitions=[instances.InstancePartition(topic="apples", partition=0, position=7, committed=5, lag=1234)],
    )
    await sidecar.beats(status)
    async with console.person("ada") as ada, sidecar.follows() as orders:
        page = f"/{name}"
        assert "apples 0 7 5 1,234" in await ada.sees(page)
        assert "billing.one billing s1 apples reading 1,234" in await ada.sees("/sidecars")
        sending = asyncio.create_task(ada.sends(page, f"{page}/pause", reason="a test"))
        order = await orders.next()
        assert order.command.WhichOneof("command") == "pause"
        await sidecar.reports(order, description="it is paused")
        assert (await sending).status_code == 303
        assert "pause done it is paused" in await ada.sees(page)
        assert name in await ada.sees("/orders")
    await own.close()
