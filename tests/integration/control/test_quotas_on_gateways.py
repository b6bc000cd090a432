"""Quotas of a real control, by real routers, at two real gateways: together they keep to a quota."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from confluent_kafka import Producer

from mesh.rpc import quotas, quotas_grpc
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.control.test_acls import router_of
from tests.integration.control.world import CALL, World, create_topic, until
from tests.integration.router.parts import WITHIN_S, ServiceProcess

RATE = 200_000.0
RECORD = 5_000
BURST_S = 11.0
"""Clients that were quiet may use so many seconds' worth at once."""
DIVIDED_S = 12.0
"""So many seconds' worth: then control has divided the quota."""
TOGETHER_S = 17.0
ALONE_S, LATEST_ALONE_S = 6.0, 8.0
"""By half of the quota, this takes 12 s, and 6 s by all of it."""


class Writer:
    """A producer with the client.id of the quota, from its start to its stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic))
        self._thread.start()

    def _run(self, bootstrap: str, topic: str) -> None:
        config = {"bootstrap.servers": bootstrap, "client.id": "greedy", "batch.size": 50_000, "linger.ms": 20}
        producer = Producer({**config, "message.timeout.ms": 120_000})
        pending = 0

        def done(error: object, _: object) -> None:
            nonlocal pending
            pending -= 1
            assert error is None
            self.bytes += RECORD

        while not self._stop.is_set():
            while pending < 40:
                pending += 1
                producer.produce(topic, bytes(RECORD), on_delivery=done)
            producer.poll(0.05)
        producer.flush(60)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


async def set_quota(world: World, value: float) -> None:
    entity = quotas.QuotaEntity(client_id=quotas.QuotaName(name="greedy"))
    change = quotas.QuotaChange(entity=entity, key=quotas.QUOTA_KEY_PRODUCER_BYTE_RATE, value=value)
    stub = quotas_grpc.QuotaServiceStub(world.channel)
    await stub.ChangeQuotas(quotas.ChangeQuotasRequest(changes=[change]), timeout=CALL)


@contextlib.asynccontextmanager
async def gateway_at(router: str, name: str, folder: Path) -> AsyncIterator[str]:
    port = free_block(2)
    settings = {
        "NAME": name,
        "LISTEN": f"127.0.0.1:{port}",
        "ROUTER_ADDRESSES": router,
        "STATE_DIR": str(folder / name),
        "DRAIN_TIMEOUT_S": "1",
    }
    gateway = ServiceProcess("gateway", port, folder / f"{name}.log", settings)
    gateway.start()
    try:
        await asyncio.to_thread(wait_until, lambda: gateway.ready() == "ready", "it is ready", WITHIN_S)
        yield f"127.0.0.1:{port}"
    finally:
        await asyncio.to_thread(gateway.stop)


async def moved(seconds_worth: float, *writers: Writer) -> float:
    """The seconds that it takes the writers to write so many seconds' worth of the quota."""
    before, began = sum(each.bytes for each in writers), time.monotonic()
    await until(lambda: sum(each.bytes for each in writers) - before > seconds_worth * RATE, "they write on", 150)
    return time.monotonic() - began


async def test_two_gateways_of_two_routers_keep_to_a_quota_together_and_one_alone_gets_more_than_half(
    mesh_of_two: World, kafka_c1: KafkaCluster, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("shared")
    create_topic(kafka_c1.bootstrap, topic, 1)
    await mesh_of_two.set(topic, "c1")
    await set_quota(mesh_of_two, RATE)
    async with (
        router_of(mesh_of_two, tmp_path, "r1") as r1,
        router_of(mesh_of_two, tmp_path, "r2") as r2,
        gateway_at(r1.address, "g1", tmp_path) as one,
        gateway_at(r2.address, "g2", tmp_path) as other,
    ):
        writers = [await asyncio.to_thread(Writer, each, topic) for each in (one, other)]
        try:
            await moved(DIVIDED_S, *writers)
            assert await moved(TOGETHER_S, *writers) > 0.85 * (TOGETHER_S - BURST_S)
            await asyncio.to_thread(writers[1].stop)
            async with asyncio.timeout(90):  # the last use of the other one has to be forgotten
                while await moved(ALONE_S, writers[0]) > LATEST_ALONE_S:
                    pass
            await set_quota(mesh_of_two, 20 * RATE)
            assert await moved(40, writers[0]) < 25  # by the quota before, this would take 29 s at least
        finally:
            for each in writers:
                await asyncio.to_thread(each.stop)
