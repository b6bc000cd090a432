"""Two controls, two routers and two gateways; parts are killed and frozen, links cut and stalled, while a topic moves.

`MESH_SOAK_S` bounds it; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.two_of_everything import TwoOfEverything, harm
from tests.fixtures.writers import Writer
from tests.integration.control.world import create_topic
from tests.integration.gateway.records import read_all
from tests.integration.gateway.stored import assert_stored_once

SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))
PROGRESS = 100
"""Records of each writer between two faults."""


@pytest.mark.timeout(SOAK_S + 600)
async def test_each_record_is_stored_once_whatever_goes_wrong(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    print(f"MESH_SEED={SEED}")
    chance = random.Random(SEED)
    topic, done, target = unique_name("moving"), list[str](), "c2"
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, topic, 2)
    migrate(database := postgres())
    async with TwoOfEverything(database, kafka_c1, kafka_c2, f"{topic}.events", tmp_path) as mesh:
        await mesh.moves(topic, "c1")
        await mesh.start_gateways()
        writers = [Writer(name, each.address, topic) for name, each in zip("ab", mesh.gateways, strict=True)]
        try:
            until = time.monotonic() + SOAK_S
            while time.monotonic() < until:
                what, moved = await harm(mesh, topic, target, chance)
                print(what)
                done.append(what)
                if moved:
                    target = "c1" if target == "c2" else "c2"
                for writer in writers:
                    await writer.goes_on(PROGRESS)
            for target in ("c1", "c2"):
                await mesh.moves(topic, target)
                for writer in writers:
                    await writer.goes_on(PROGRESS)
        except BaseException as error:
            error.add_note(f"MESH_SEED={SEED}, done: {'; '.join(done)}; logs in {tmp_path}")
            raise
        finally:
            for writer in writers:
                await writer.end()
    assert [writer.faults for writer in writers] == [[], []]
    stored = {name: read_all(each.bootstrap, topic) for name, each in (("c1", kafka_c1), ("c2", kafka_c2))}
    assert all(stored.values()), "both clusters have had their share"
    assert_stored_once([*stored["c1"], *stored["c2"]], [value for writer in writers for value in writer.stored])
    print(f"{len(done)} faults, {sum(len(writer.stored) for writer in writers)} records acknowledged")
