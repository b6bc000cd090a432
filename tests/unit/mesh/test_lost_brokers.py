"""A client that was told of no brokers may stay without brokers for ever: its statistics show that."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from mesh.lost_brokers import BrokerWatch
from services.gateway.wire.apis import ApiKey
from tests.unit.gateway.scripted_broker import METADATA_ALONE, broker

WITHIN_S = 30.0
EAGER = {"statistics.interval.ms": 100, "topic.metadata.refresh.interval.ms": 200, "log_level": 0}
NEVER_AGAIN = {"metadata.recovery.strategy": "none"}
"""The client does not begin again, as by the fault of librdkafka, which shows in one try of ten."""


async def _watched(client: Any, watch: BrokerWatch, lost: bool, asks: Any) -> None:
    deadline = time.monotonic() + WITHIN_S
    while watch.is_lost is not lost or not asks():
        assert time.monotonic() < deadline, f"lost: {watch.is_lost}"
        await asyncio.to_thread(client.poll, 0.1)


async def test_a_client_that_never_begins_again_is_noticed_and_a_new_one_works() -> None:
    async with broker({"apples": 1}) as waking:
        waking.versions = METADATA_ALONE
        watch, address = BrokerWatch(), {"bootstrap.servers": waking.address}
        client = Producer({**address, **EAGER, **NEVER_AGAIN, "stats_cb": watch})
        client.produce("apples", b"1")
        await _watched(client, watch, False, lambda: waking.requests(ApiKey.METADATA))
        waking.tell_of_no_brokers()
        await _watched(client, watch, True, lambda: True)
        del waking.scripts[ApiKey.METADATA]
        assert await asyncio.to_thread(Producer({**address, "log_level": 0}).list_topics, "apples", WITHIN_S)
        assert watch.is_lost
        client.purge()


async def test_a_client_whose_brokers_do_not_answer_still_knows_them() -> None:
    async with broker({"apples": 1}) as leaving:
        leaving.versions = METADATA_ALONE
        watch, reports = BrokerWatch(), 0

        def heard(document: str) -> None:
            nonlocal reports
            reports += 1
            watch(document)

        client = Consumer({"bootstrap.servers": leaving.address, **EAGER, "group.id": "g", "stats_cb": heard})
        client.subscribe(["apples"])
        await _watched(client, watch, False, lambda: leaving.requests(ApiKey.METADATA))
        await leaving.stop()
        before = reports
        await _watched(client, watch, False, lambda: reports > before + 10)
        client.close()
