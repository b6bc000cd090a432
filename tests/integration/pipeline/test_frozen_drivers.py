"""A driver that stood still while another one took over its work: it ends, and changes nothing of the other's."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.freezing import frozen
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.toolchain import QUICK_JVM, need_spark
from tests.soak.pipeline.killed_jobs import KilledJob, has_any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.pipeline.audits import AuditRuns
    from tests.integration.pipeline.orchard import Orchard

pytestmark = pytest.mark.timeout(500)

DAYS = 60
"""Each has a file of its own, so that the files of a batch take long enough to be seen in the making."""
EVENTS = 20 * DAYS
WITHIN_S = 120.0
RECORDS = 60_000
TWO_DAYS = ("2026-11-20", "2026-11-21")


def audit_job(audits: AuditRuns, log: Path, *how: str) -> KilledJob:
    return KilledJob(
        log,
        *("audit", "--to", str(audits.folder), "--cluster", f"c1={audits.bootstraps['c1']}", *how),
        DATABASE_URL=audits.database.url,
        AUDIT_TOPICS=audits.records,
        AUDIT_HOME_TOPICS=audits.own,
        AUDIT_CALLS_TOPIC=audits.calls,
        AUDIT_KEPT_DAYS=str(2 * DAYS),
        TRIGGER_INTERVAL_S="0.2",
        MASTER="local[2]",
        DRIVER_JAVA_OPTIONS=QUICK_JVM,
    )


@pytest.mark.soak
def test_an_audit_that_stood_still_ends_when_it_goes_on_and_deletes_nothing_of_its_follower(
    audits: AuditRuns, tmp_path: Path
) -> None:
    from tests.integration.pipeline.audits import NOW, event

    told: list[str] = []

    def tell() -> None:
        events = [event(NOW - timedelta(days=number % DAYS)) for number in range(EVENTS)]
        audits.tell("c1", audits.records, *events)
        told.extend(each["id"] for each in events)

    def half_written() -> list[Path]:
        """Batches whose files are written, and not all of them yet."""
        found = (audits.folder / "cluster=c1").glob("_staged/batch=*")
        return [each for each in found if has_any(each, "day=*/*.parquet") and not has_any(each, "decided*.json")]

    audits.make("c1", audits.records)
    first = audit_job(audits, tmp_path / "first.log", "--continuous")
    try:
        while True:
            tell()
            first.reaches(lambda: bool(half_written()), "it writes files")
            with frozen(first.pid):
                if not half_written():
                    continue  # it has written all of them before it stood still
                second = audit_job(audits, tmp_path / "second.log")
                second.finish()
                files = sorted(audits.folder.glob("cluster=*/day=*/**/*.parquet"))
                assert sorted(row["event_id"] for row in audits.files()) == sorted(told)
            break
        assert f"is written by process {second.pid}" in first.fails(WITHIN_S)
        assert sorted(audits.folder.glob("cluster=*/day=*/**/*.parquet")) == files
        assert sorted(audits.ids()) == sorted(told)
    finally:
        first.kill()


def archive_job(orchard: Orchard, kafka: KafkaCluster, folder: Path, log: Path) -> KilledJob:
    return KilledJob(
        log,
        *("archive", orchard.topic, "--to", str(folder), "--bootstrap", kafka.bootstrap),
        MASTER="local[2]",
        DRIVER_JAVA_OPTIONS=QUICK_JVM,
    )


def test_an_archive_that_stood_still_ends_when_it_goes_on_and_replaces_nothing_of_its_follower(
    spark: SparkSession, orchard: Orchard, kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    from tests.integration.pipeline.archives import read_back

    def is_half_written(folder: Path) -> bool:
        return has_any(folder, "_staged/**/*.parquet") and not has_any(folder, "day=*")

    orchard.create()
    orchard.grow(RECORDS)
    for attempt in count():
        folder, log = tmp_path / f"archive-{attempt}", tmp_path / f"first-{attempt}.log"
        first = archive_job(orchard, kafka_c1, folder, log)
        try:
            first.reaches(partial(is_half_written, folder), "it writes files")
            with frozen(first.pid):
                if not is_half_written(folder):
                    continue  # it has written all of them before it stood still
                orchard.grow(1_000)
                second = archive_job(orchard, kafka_c1, folder, tmp_path / "second.log")
                second.finish()
                assert read_back(folder) == orchard.records
            assert f"is written by process {second.pid}" in first.fails(WITHIN_S)
            assert read_back(folder) == orchard.records
            return
        finally:
            first.kill()


def traffic_job(kafka: KafkaCluster, database: str, topic: str, log: Path, *how: str) -> KilledJob:
    return KilledJob(
        log,
        *("traffic", "--cluster", f"home={kafka.bootstrap}", *how),
        DATABASE_URL=database,
        TRAFFIC_TOPIC=topic,
        TRIGGER_INTERVAL_S="0.2",
        MASTER="local[2]",
        DRIVER_JAVA_OPTIONS=QUICK_JVM,
    )


@pytest.mark.soak
def test_reports_count_once_when_a_job_of_traffic_goes_on_that_stood_still(
    kafka_c1: KafkaCluster, postgres: PostgresServer, topic: str, tmp_path: Path
) -> None:
    need_spark()
    from tests.integration.pipeline.emitters import Counter, Emitters, Tables

    database, noon = postgres.migrated(), datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    emitters, tables = Emitters(kafka_c1.bootstrap, topic), Tables(database)
    log = tmp_path / "first.log"

    def report() -> None:
        for number in range(20):
            emitters.report(noon - timedelta(days=1, minutes=number), [Counter()])
        emitters.flush()

    report()
    first = traffic_job(kafka_c1, database, topic, log, "--continuous")
    try:
        first.reaches(lambda: first.has_workers, "it reads a batch")
        with frozen(first.pid):
            assert not tables.progress().get("batch"), "the batch is planned, and not written"
            traffic_job(kafka_c1, database, topic, tmp_path / "second.log").finish()
            assert tables.numbers() == emitters.numbers()
            report()
        wait_until(lambda: tables.numbers() == emitters.numbers(), "the first takes what came since", WITHIN_S)
        first.stop()
        assert "another pipeline rolls up traffic into this database" in log.read_text()
        assert tables.numbers() == emitters.numbers()
    finally:
        first.kill()
        emitters.delete()


def test_a_batch_of_audit_has_its_files_once_whichever_driver_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    from services.pipeline.auditing.folders import ClusterFolder
    from tests.integration.pipeline.take_overs import taken_over

    def days(folder: ClusterFolder) -> list[str]:
        return sorted(each.stem for each in Path(folder.path).glob("day=*/batch=0/*.parquet"))

    def write(folder: ClusterFolder, driver: str) -> None:
        if not folder.is_decided(0):
            folder.clear_stage()
            named = [(day, f"{driver}-{day}.parquet") for day in TWO_DAYS]
            for day, name in named:
                file = Path(folder.path) / "_staged" / "batch=0" / f"day={day}" / name
                file.parent.mkdir(parents=True)
                file.touch()
            folder.decide(0, named)
        folder.publish(0)

    for at in count(1):
        first, second, third = (ClusterFolder(spark, str(tmp_path / f"change-{at}"), "c1") for _ in range(3))
        first.take()
        left = Path(first.path) / "_staged" / "batch=0" / "day=2026-11-20" / "left.parquet"
        left.parent.mkdir(parents=True)
        left.touch()
        Path(first.checkpoint).mkdir()

        def take_over(second: ClusterFolder = second) -> None:
            second.take()
            write(second, "second")

        with taken_over(take_over, at=at) as changes, suppress(Exception):
            write(first, "first")
        whole = [[f"{driver}-{day}" for day in TWO_DAYS] for driver in ("first", "second")]
        assert days(second) in whole, changes
        third.take()
        write(third, "third")
        assert days(third) in [*whole, [f"third-{day}" for day in TWO_DAYS]], changes
        if len(changes) < at:
            break
    assert at > 5, "what was left, the decision, the files"
