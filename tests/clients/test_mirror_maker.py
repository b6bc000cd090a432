"""Connect and MirrorMaker 2: a topic of one cluster is copied to the other, all through the one address."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.contract import Message, Sending
from tests.clients.matrix import Feature
from tests.clients.mirror_maker.driver import INTERNAL, Mirror
from tests.clients.world import World

PARTITIONS = 2
RECORDS = 40
COPIED_WITHIN_SECONDS = 90
LOOK_AGAIN_SECONDS = 0.5


@pytest.mark.soak
@pytest.mark.feature(Feature.PRODUCE, Feature.GROUP, Feature.ADMIN, client="mirror-maker")
@pytest.mark.timeout(180)
async def test_a_topic_is_copied_to_the_other_cluster(world: World, tmp_path: Path) -> None:
    if world.operator is not None:
        world.operator.route_prefix(INTERNAL, "c1")
    topic, _ = await world.topic_on_each(PARTITIONS)
    sent = [Message(topic, f"value-{number}", f"key-{number}") for number in range(RECORDS)]
    await ConfluentClient(world.bootstrap).produce(sent, Sending())
    mirror = Mirror(world.bootstrap, world.name("c2-copy"), topic)

    async with mirror.running(tmp_path):
        copied: Counter[str] = Counter()
        try:
            async with asyncio.timeout(COPIED_WITHIN_SECONDS):
                await world.c2.wait_for_partitions(mirror.copy, PARTITIONS, COPIED_WITHIN_SECONDS)
                while copied.total() < RECORDS:
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                    copied = Counter(record.value for record in await world.c2.read(mirror.copy))
        except TimeoutError:
            told = (tmp_path / "mirror.log").read_text(encoding="utf-8", errors="replace")[-4000:]
            raise AssertionError(f"{copied.total()} of {RECORDS} records copied\n{told}") from None

    assert copied == Counter(message.value for message in sent)
    await world.c2.delete_topic(mirror.copy)
