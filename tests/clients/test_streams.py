"""Kafka Streams with a repartition topic and a store: its input on one cluster, all the rest on another."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.contract import Message, Sending
from tests.clients.matrix import Feature
from tests.clients.streams.driver import WordCount
from tests.clients.world import World

PARTITIONS = 2
FIRST, SECOND = ("apples pears apples", "plums apples"), ("pears apples quinces",)
LOOK_AGAIN_SECONDS = 0.2
COUNTED_WITHIN_SECONDS = 60.0


@pytest.mark.soak
@pytest.mark.feature(Feature.PRODUCE, Feature.GROUP, client="streams")
@pytest.mark.timeout(360)
async def test_counts_go_on_over_two_clusters_after_the_state_is_lost(world: World, tmp_path: Path) -> None:
    output, lines = await world.topic_on_each(PARTITIONS)
    name = world.name("c1-streams")
    await count_in_two_lives(world, WordCount(world.bootstrap, name, "at_least_once", tmp_path, lines, output))


@pytest.mark.soak
@pytest.mark.feature(Feature.PRODUCE, Feature.GROUP, client="streams")
@pytest.mark.timeout(360)
async def test_counts_are_exact_on_one_cluster(world: World, tmp_path: Path) -> None:
    lines, _ = await world.topic_on_each(PARTITIONS)
    output, _ = await world.topic_on_each(PARTITIONS)
    name = world.name("c1-streams")
    await count_in_two_lives(world, WordCount(world.bootstrap, name, "exactly_once_v2", tmp_path, lines, output))


@pytest.mark.feature(Feature.PRODUCE, Feature.GROUP, Feature.TRANSACTIONS, client="streams")
@pytest.mark.timeout(360)
async def test_counts_are_exact_over_two_clusters(world: World, tmp_path: Path) -> None:
    """What is read, and so its offsets, on c2; changelog, repartition topic and output on c1: one transaction."""
    output, lines = await world.topic_on_each(PARTITIONS)
    name = world.name("c1-streams")
    await count_in_two_lives(world, WordCount(world.bootstrap, name, "exactly_once_v2", tmp_path, lines, output))


async def count_in_two_lives(world: World, app: WordCount) -> None:
    """The second one finds no state on its disk: it takes it from the changelog."""
    expected: Counter[str] = Counter()
    for lines in (FIRST, SECOND):
        await ConfluentClient(world.bootstrap).produce([Message(app.input, line) for line in lines], Sending())
        expected.update(word for line in lines for word in line.split())
        async with app.running():
            await until_counted(world, app.output, expected)
        shutil.rmtree(app.state)
    for topic in app.internal_topics:
        await world.c1.wait_for_partitions(topic, PARTITIONS)
        await world.c1.delete_topic(topic)


async def until_counted(world: World, output: str, expected: Counter[str]) -> None:
    counts: dict[str, int] = {}
    try:
        async with asyncio.timeout(COUNTED_WITHIN_SECONDS):
            while counts != expected:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                counts = {str(record.key): int(record.value) for record in await world.c1.read(output)}
    except TimeoutError:
        raise AssertionError(f"counted {counts}, expected {dict(expected)}") from None
