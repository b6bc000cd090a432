"""Control as its users start it: one process, told to stop by a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_channel
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block

START, STOP = 100.0, 60.0


async def test_a_signal_stops_it_in_order_although_somebody_watches(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    port = free_block(2)
    environment = {
        "KAFKA_MESH_CONTROL_DATABASE_URL": database,
        "KAFKA_MESH_CONTROL_HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap,
        "KAFKA_MESH_CONTROL_EVENTS_TOPIC": events_topic,
        "KAFKA_MESH_CONTROL_LISTEN": f"127.0.0.1:{port}",
        "KAFKA_MESH_CONTROL_METRICS_LISTEN": f"127.0.0.1:{port + 1}",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.control",
        env=os.environ | environment,
        stderr=asyncio.subprocess.PIPE,
    )
    channel = open_channel(f"127.0.0.1:{port}")
    try:
        clusters, decisions = admin_grpc.ClusterServiceStub(channel), admin_grpc.QueryServiceStub(channel)
        assert process.stderr is not None
        async with asyncio.timeout(START):
            while b'"ready"' not in await process.stderr.readline():
                assert process.returncode is None
        spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=[kafka_c1.bootstrap])
        await clusters.RegisterCluster(admin.RegisterClusterRequest(spec=spec), timeout=START, wait_for_ready=True)
        watch = decisions.WatchEvents(admin.WatchEventsRequest(from_position=1))
        assert await asyncio.wait_for(watch.read(), START)
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), STOP)
        assert process.returncode == 0, log.decode()
        assert b'"error"' not in log, log.decode()
        watch.cancel()
    finally:
        await channel.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
