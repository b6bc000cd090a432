"""A lane of a copy, as far as it needs no cluster."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from mesh.rpc import replays
from services.pipeline.copying.lane import Lane
from services.pipeline.copying.notes import Note
from services.pipeline.copying.planning import Held
from services.pipeline.copying.routes import Route
from services.pipeline.copying.tasks import Access, LaneTask, Part
from services.pipeline.positions import PartitionLog

NOBODY: dict[str, str] = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
PART = Part(
    ("apples", 0), Route("apples", "c1", "apples", "c2", "pears", "g"), Note("", 0, 90, 0, 0, 3),
    Held(PartitionLog(0, 90), None), 3, 16_384,
)  # fmt: skip


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A worker collects garbage when it has made much of it; clients of Kafka are few, and each has threads."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_the_client_of_a_lane_goes_with_it() -> None:
    copy = replays.ReplayToTopic().SerializeToString()
    task = LaneTask(0, "g.lane-0", "c1", "c2", (PART,), copy, 0.0, 30.0, 60.0)
    lane = Lane(task, Access({"c1": NOBODY, "c2": NOBODY}, None))
    lane.close()
    gone = weakref.ref(lane)
    del lane
    assert gone() is None
