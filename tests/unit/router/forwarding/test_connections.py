"""The clients of a record rule, and their loss of all brokers."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from mesh.rpc import routing
from services.gateway.wire.apis import ApiKey
from services.router.forwarding.connections import Cluster, Setback
from tests.unit.gateway.scripted_broker import METADATA_ALONE, ScriptedBroker, broker

WITHIN_S = 30.0
EAGER = {"statistics.interval.ms": 100, "topic.metadata.refresh.interval.ms": 200, "log_level": 0}


async def test_a_consumer_that_lost_all_brokers_for_good_is_a_setback() -> None:
    async with broker({"apples": 1}) as waking, asyncio.timeout(WITHIN_S):
        waking.versions = METADATA_ALONE
        cluster = Cluster(routing.ClusterSpec(cluster_name="c1", bootstrap_servers=[waking.address]), "rule")
        await asyncio.to_thread(_read_until_all_brokers_are_lost, cluster, waking)
        cluster.check()


def _read_until_all_brokers_are_lost(cluster: Cluster, waking: ScriptedBroker) -> None:
    """In one call, so that no thread of a pool still holds the consumer when the function has returned."""
    with closing(cluster.consumer(**EAGER, **{"metadata.recovery.strategy": "none"})) as consumer:
        consumer.subscribe(["apples"])
        while not waking.requests(ApiKey.METADATA):
            consumer.poll(0.1)
        cluster.check()
        waking.tell_of_no_brokers()
        with pytest.raises(Setback, match="cluster 'c1' named no brokers"):
            while True:
                consumer.poll(0.1)
                cluster.check()
