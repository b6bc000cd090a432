"""Kafka Streams, exactly once over two clusters, while gateways, brokers and the application are killed at random.

`MESH_SOAK_S` bounds it; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from local.layout import STATE_FOLDER
from tests.fixtures.meshes import running_mesh
from tests.fixtures.streams_under_kills import StreamsUnderKills

SOAK_S = float(os.environ.get("MESH_SOAK_S", "600"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.timeout(SOAK_S + 900)
def test_counts_are_exact_and_no_transaction_is_torn_whoever_is_killed(kafka_jars: None, tmp_path: Path) -> None:
    print(f"MESH_SEED={SEED}", flush=True)
    with running_mesh(tmp_path / STATE_FOLDER, "--gateways", "2") as mesh:
        streams = StreamsUnderKills(mesh, f"streams-{uuid.uuid4().hex[:8]}", random.Random(SEED), tmp_path)
        until = time.monotonic() + SOAK_S
        try:
            streams.run(lambda _: time.monotonic() < until)
        except BaseException as error:
            error.add_note(f"MESH_SEED={SEED}, killed: {', '.join(streams.done)}; logs in {tmp_path}")
            raise
    twins = streams.reader.twins
    print(
        f"{len(streams.done)} kills {dict(Counter(streams.done))}; {len(streams.words)} records counted; "
        f"{streams.reader.readings} readings, one record of a pair alone for {twins.longest_s:.3f} s at most"
    )
