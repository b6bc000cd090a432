"""A lane of a copy, as far as it needs no cluster."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from services.pipeline.copying.lane import Lane
from services.pipeline.copying.tasks import Access
from tests.unit.pipeline.copying.lane_tasks import task

NOBODY: dict[str, str] = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A worker collects garbage when it has made much of it; clients of Kafka are few, and each has threads."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_the_client_of_a_lane_goes_with_it() -> None:
    lane = Lane(task(), Access({"c1": NOBODY, "c2": NOBODY}, None))
    lane.close()
    gone = weakref.ref(lane)
    del lane
    assert gone() is None
