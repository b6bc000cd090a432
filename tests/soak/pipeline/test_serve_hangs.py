"""The workers of a driver stand still in mid-batch: serve sees that the batch hangs, and starts the driver anew."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.emitters import Counter, Emitters, Tables
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
        still = stand_still(serve)
        ends_the_hang(serve, still)
        orchard.grow(1_000)
        wait_until(lambda: read_back(folder) == orchard.records, "all is archived", WITHIN_S)
        serve.stop()
    finally:
        serve.end()
        orchard.clear()


@pytest.mark.timeout(1_200)
def test_traffic_whose_workers_stand_still_is_started_anew_and_counts_each_report_once(
    kafka_c1: KafkaCluster, topic: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    need_spark()
    url, log = postgres.migrated(), tmp_path / "serve.log"
    emitters, tables = Emitters(kafka_c1.bootstrap, topic), Tables(url)
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)

    def report() -> None:
        emitters.report(noon, [Counter()])
        emitters.flush()

    report()
    serve = Serve(
        log,
        CONTROL_ADDRESSES="127.0.0.1:1",
        CLUSTERS=json.dumps({"home": {"bootstrap.servers": kafka_c1.bootstrap}}),
        DATABASE_URL=url,
        JOBS="traffic",
        TRAFFIC_TOPIC=topic,
        TRIGGER_INTERVAL_S="1",
        DRIVER_SILENCE_S=str(SILENCE_S),
        DRIVER_NICENESS="0",
    )
    try:
        wait_until(lambda: tables.numbers() == emitters.numbers(), "it counts", WITHIN_S)
        still = stand_still(serve)
        report()
        ends_the_hang(serve, still)
        assert "driver killed, for it hangs" in log.read_text()
        wait_until(lambda: tables.numbers() == emitters.numbers(), "all is counted", WITHIN_S)
        serve.stop()
    finally:
        serve.end()
        emitters.delete()


def stand_still(serve: Serve) -> list[psutil.Process]:
    """The workers of its driver, which do nothing more."""
    still = serve.workers
    assert still, "no workers are at work"
    for worker in still:
        worker.suspend()
    return still


def ends_the_hang(serve: Serve, still: list[psutil.Process]) -> None:
    wait_until(lambda: serve.metric("driver_hangs_total") > 0, "the hang is seen", WITHIN_S)
    wait_until(lambda: not any(worker.is_running() for worker in still), "its processes are gone", WITHIN_S)
