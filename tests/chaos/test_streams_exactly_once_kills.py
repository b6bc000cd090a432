"""Kafka Streams, exactly once over two clusters: an instance, a broker and both gateways are killed, each once.

`tests/soak/test_streams_random_kills.py` does so at random, for ten minutes.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from local.layout import STATE_FOLDER
from tests.fixtures.meshes import running_mesh
from tests.fixtures.streams_under_kills import StreamsUnderKills

KILLED = ("application a", "kafka-c2", "both gateways")
SEED = 22


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_counts_are_exact_and_no_transaction_is_torn(kafka_jars: None, tmp_path: Path) -> None:
    with running_mesh(tmp_path / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        streams = StreamsUnderKills(mesh, f"streams-{uuid.uuid4().hex[:8]}", random.Random(SEED), tmp_path)
        streams.run(lambda kills: kills < len(KILLED), KILLED)
    assert streams.done == list(KILLED)
    assert streams.reader.readings, "transactions were looked for that are torn"
