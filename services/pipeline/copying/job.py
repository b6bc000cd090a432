"""The job `replay`: copies records to other topics or clusters, each exactly once.

No record enters the JVM. Each Spark task itself copies the partitions of one lane (copying/). If a machine is lost,
Spark runs its tasks again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]  # where it is installed
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mesh.rpc import replays
from services.pipeline.copying.errors import SetbackError, from_task
from services.pipeline.copying.origins import Archive
from services.pipeline.copying.replay import Replaying
from services.pipeline.copying.tasks import Access, LaneTask, count_lane
from services.pipeline.copying.transactions import copy_lane
from services.pipeline.driver_protocol.orders import Order, Report
from services.pipeline.kafka.positions import Place


def run(
    session: Callable[[], SparkSession],
    order: Order,
    archive: Archive | None,
    report: Report,
    stopping: threading.Event,
    *,
    timeout_s: float,
    stall_timeout_s: float,
) -> replays.ReplayState.ValueType:
    """Carries out the order until its end or `stopping`; Spark starts only if there is something to copy."""
    work = SparkWork(session, order.replay.name)
    replaying = Replaying(order, archive, work, report, stopping, timeout_s=timeout_s, stall_timeout_s=stall_timeout_s)
    return replaying.run()


class SparkWork:
    """Runs a Spark task for each lane."""

    def __init__(self, session: Callable[[], SparkSession], name: str) -> None:
        self._session, self._name = session, name
        self._started: SparkSession | None = None
        self._is_cancelled = False

    def slots(self) -> int:
        return int(self._session().sparkContext.defaultParallelism)

    def run(self, tasks: Sequence[LaneTask], access: Access, *, dry_run: bool) -> dict[Place, int]:
        self._is_cancelled = False
        self._started = self._session()
        context = self._started.sparkContext
        work = partial(count_lane if dry_run else copy_lane, access=access)
        context.setJobGroup(self._name, f"{self._name}: {len(tasks)} lanes", interruptOnCancel=True)
        if self._is_cancelled:
            raise SetbackError("cancelled before Spark had started")
        try:
            results = context.parallelize(tasks, len(tasks)).map(work).collect() if tasks else []
        except (Py4JError, PySparkException) as failure:
            raise from_task(failure) from failure
        return {place: count for counted in results for place, count in (counted or {}).items()}

    def cancel(self) -> None:
        """Does not wait for Spark; a job that is about to begin does not begin then."""
        self._is_cancelled = True
        if self._started is not None:
            self._started.sparkContext.cancelJobGroup(self._name)
