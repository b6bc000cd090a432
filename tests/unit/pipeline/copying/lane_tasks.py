"""A lane of one partition, for tests that need no cluster."""

from __future__ import annotations

from typing import Any

from mesh.rpc import replays
from services.pipeline.copying.notes import Note
from services.pipeline.copying.offsets import Held
from services.pipeline.copying.routes import Route
from services.pipeline.copying.tasks import LaneTask, Part
from services.pipeline.kafka.positions import PartitionLog

LOG = PartitionLog(5, 90)
ROUTE = Route("apples", "c1", "apples", "c2", "pears", "g")


def task(archived: PartitionLog | None = None, **said: Any) -> LaneTask:
    """Of offsets 5 to 90 of one partition, as far as `archived` has them from the archive; `said` is of the copy."""
    part = Part(("apples", 0), ROUTE, Note("", 0, 90, 0, 0, 3), Held(LOG, archived), 3, 16_384)
    copy = replays.ReplayToTopic(**said).SerializeToString()
    return LaneTask(0, "g.lane-0", "c1", "c2", (part,), copy, 0.0, 30.0, 60.0)
