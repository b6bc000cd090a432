"""A consumer on the home cluster ends also while the cluster is gone, and takes nobody with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition

from mesh.cluster_access import ClusterAccess
from services.router.agents.home_consumer import CLOSE_TIMEOUT, close, home_consumer
from services.router.agents.snapshot_topic import SnapshotTopic, SnapshotTopicError
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import until
from tests.integration.router.parts import WITHIN_S, PublishedLog, create_topic


async def test_a_consumer_whose_broker_was_killed_closes_and_does_not_end_its_caller(
    kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = TopicPartition(unique_name("read"), 0)
    create_topic(kafka_c1.bootstrap, topic.topic)
    before = asyncio.all_tasks()
    consumer = home_consumer(ClusterAccess((kafka_c1.bootstrap,)), "reader")
    await consumer.start()
    consumer.assign([topic])
    consumer.seek(topic, 0)
    await until(lambda: consumer.last_poll_timestamp(topic), "the broker has answered a fetch")
    await asyncio.to_thread(kafka_c1.kill)
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):  # long enough for fetches that fail and are tried again
                while True:
                    await consumer.getmany(topic, timeout_ms=1000)
        async with asyncio.timeout(CLOSE_TIMEOUT + WITHIN_S):
            await close(consumer)
        await until(lambda: asyncio.all_tasks() <= before, "no task of the consumer goes on")
    finally:
        await asyncio.to_thread(kafka_c1.kill)
        kafka_c1.launch()
        await asyncio.to_thread(kafka_c1.wait_until_it_answers)


async def test_a_cluster_that_is_killed_while_snapshots_are_read_is_said(
    kafka_c1: KafkaCluster, log: PublishedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one that the follower knows; the follower reads the log from its beginning then."""
    monkeypatch.setattr("services.router.agents.snapshot_topic.TIMEOUT", 8.0)
    create_topic(kafka_c1.bootstrap, log.snapshots_topic)
    topic = SnapshotTopic(ClusterAccess((kafka_c1.bootstrap,)), log.snapshots_topic, log.topic, 1)
    partition = TopicPartition(log.snapshots_topic, 0)
    try:
        with pytest.raises(SnapshotTopicError):
            async with topic._reading() as consumer:
                consumer.assign([partition])
                consumer.seek(partition, 0)
                await until(lambda: consumer.last_poll_timestamp(partition), "the broker has answered a fetch")
                await asyncio.to_thread(kafka_c1.kill)
                await consumer.getmany(partition, timeout_ms=60_000)
    finally:
        await asyncio.to_thread(kafka_c1.kill)
        kafka_c1.launch()
        await asyncio.to_thread(kafka_c1.wait_until_it_answers)
