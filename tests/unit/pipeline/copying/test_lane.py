"""A lane of a copy, as far as it needs no cluster."""

from __future__ import annotations

import weakref

from services.pipeline.copying.tasks import Access
from services.pipeline.copying.transactions import Lane
from tests.fixtures.garbage import no_collector
from tests.unit.pipeline.copying.lane_tasks import task

NOBODY: dict[str, str] = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def test_the_client_of_a_lane_goes_with_it() -> None:
    """Clients of Kafka are few, and each has threads."""
    with no_collector():
        lane = Lane(task(), Access({"c1": NOBODY, "c2": NOBODY}, None))
        lane.close()
        gone = weakref.ref(lane)
        del lane
        assert gone() is None
