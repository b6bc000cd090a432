"""How long a newcomer waits for `kafka-mesh up`: the first start in a folder, and the next ones, with their state.

Packages and Kafka's jars are there already; what fetching them adds depends on the network.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from local.layout import STATE_FOLDER
from local.services import PORTS
from tests.bench.figures import Sheet, Table, spread
from tests.fixtures.meshes import SPARE_PORTS, running_mesh
from tests.fixtures.ports import free_block

FOLDERS = int(os.environ.get("MESH_BENCH_STARTS", "2"))
GOAL_OF_SECOND_S = 8
NOT_BY_THE_CLOCK = 3600


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_start_times(kafka_jars: None, tmp_path: Path, sheet: Sheet) -> None:
    first: list[float] = []
    second: list[float] = []
    stop: list[float] = []
    for number in range(FOLDERS):
        state = tmp_path / str(number) / STATE_FOLDER
        ports = ("--port-base", str(free_block(len(PORTS) + SPARE_PORTS)))
        for times in (first, second):
            began = time.monotonic()
            with running_mesh(state, *ports):
                times.append(time.monotonic() - began)
                began = time.monotonic()
            stop.append(time.monotonic() - began)
    rows = [
        ["first start: data folders made, database migrated, example applied", spread(first, 1)],
        [f"second start (the goal is under {GOAL_OF_SECOND_S} s)", spread(second, 1)],
        ["stop", spread(stop, 1)],
    ]
    notes = [f"{FOLDERS} folders; until every service is ready, packages and Kafka's jars in their caches"]
    sheet.add(Table("kafka-mesh up", ["what", "seconds"], rows, notes))
