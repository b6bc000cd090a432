"""What an error of a reader means for a copy: to be tried again, or its end."""

from __future__ import annotations

import pytest

from mesh.rpc import replays
from services.pipeline.copying.errors import CopyError, SetbackError
from services.pipeline.copying.tasks import judged
from services.pipeline.kafka.positions import PartitionLog, RecordsLostError, StreamError, UnreachableError
from tests.unit.pipeline.copying.lane_tasks import task

LOST = RecordsLostError("apples/0 does not hold offset 3 any more")


def test_a_cluster_that_is_away_is_asked_again() -> None:
    assert isinstance(judged(UnreachableError("apples/0 stands at offset 3"), task()), SetbackError)


def test_what_retention_took_meanwhile_is_looked_for_in_the_archive_where_there_is_one() -> None:
    assert isinstance(judged(LOST, task(archived=PartitionLog(0, 80))), SetbackError)
    assert isinstance(judged(LOST, task()), CopyError)
    only = task(archived=PartitionLog(0, 80), archive=replays.REPLAY_ARCHIVE_ONLY)
    assert isinstance(judged(LOST, only), CopyError), "that is the archive itself"


@pytest.mark.parametrize("error", [StreamError("a transaction may be open there"), LOST])
def test_other_errors_end_it(error: StreamError) -> None:
    found = judged(error, task())
    assert isinstance(found, CopyError)
    assert str(error) in str(found)
