"""The workers of a driver stand still in mid-batch: serve sees that the batch hangs, and starts the driver anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.killed_jobs import has_any
from tests.soak.pipeline.serves import Serve

RECORDS = 60_000
SILENCE_S = 30.0
"""Longer than a driver takes to start on a busy machine: a start reports nothing either."""
WITHIN_S = 240.0


@pytest.mark.timeout(1_200)
def test_an_archive_whose_workers_stand_still_is_started_anew_and_loses_nothing(
    kafka_c1: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    need_spark()
    from tests.integration.pipeline.archives import read_back

    folder = tmp_path / "archive"
    orchard = Orchard(kafka_c1.bootstrap, topic)
    orchard.create()
    orchard.grow(RECORDS)
    serve = Serve(
        tmp_path / "serve.log",
        CONTROL_ADDRESSES="127.0.0.1:1",
        BOOTSTRAP_SERVERS=kafka_c1.bootstrap,
        JOBS="archive",
        ARCHIVE_FOLDER=str(folder),
        ARCHIVE_TOPICS=topic,
        ARCHIVE_INTERVAL_S="1",
        MAX_BATCH_ROWS="2000",
        DRIVER_SILENCE_S=str(SILENCE_S),
        DRIVER_NICENESS="0",
    )
    try:
        wait_until(lambda: has_any(folder, "day=*/**/*.parquet"), "it archives", WITHIN_S)
        still = serve.workers
        assert still, "no workers are at work"
        before = serve.metric("driver_hangs_total")
        for worker in still:
            worker.suspend()
        wait_until(lambda: serve.metric("driver_hangs_total") > before, "the hang is seen", WITHIN_S)
        wait_until(lambda: not any(worker.is_running() for worker in still), "its processes are gone", WITHIN_S)
        orchard.grow(1_000)
        wait_until(lambda: read_back(folder) == orchard.records, "all is archived", WITHIN_S)
        serve.stop()
    finally:
        serve.end()
        orchard.clear()
