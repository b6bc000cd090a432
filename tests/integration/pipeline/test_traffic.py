"""The job `traffic` against a real cluster and a real database: what was counted is what the tables say."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptance, Acceptances, Answer, answer_of_line
from services.pipeline.driver_protocol.job_reports import JobReport
from services.pipeline.kafka.source import GATEWAY, KafkaSource
from services.pipeline.postgres.tables import Database
from services.pipeline.traffic.progress import Keeping
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.emitters import STEPS, Counter, Emitters, Tables
from tests.integration.pipeline.toolchain import sparks_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from services.pipeline.traffic import job as traffic

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
"""Of yesterday: whole hours of it are over."""
OFTEN = timedelta(milliseconds=100)
JOIN_S = 60.0


class Job:
    """The job `traffic`, with its own topic and tables."""

    def __init__(self, session: SparkSession, bootstrap: str, topic: str, url: str) -> None:
        self._session = session
        self._bootstrap = bootstrap
        self._url = url
        self.emitters = Emitters(bootstrap, topic)
        self.tables = Tables(url)

    def run(self, *, accept_loss: bool = False, keeping: Keeping | None = None, **more: Any) -> traffic.RolledUp:
        from services.pipeline.traffic import job as traffic

        self.emitters.flush()
        source = KafkaSource(
            topics=(self.emitters.topic,),
            clusters={GATEWAY: {"bootstrap.servers": self._bootstrap}},
            max_batch_rows=1,
            stall_timeout_s=10.0,
            request_timeout_s=10.0,
            accept_loss=accept_loss,
            skip_absent=True,
        )
        return traffic.run(self._session, source, Database(self._url), keeping=keeping or Keeping(), **more)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The continuous form, in a thread of its own."""
        stopping = threading.Event()
        thread = threading.Thread(target=self.run, kwargs={"every": OFTEN, "stopping": stopping})
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(JOIN_S)


@pytest.fixture
def job(spark: SparkSession, kafka_c1: KafkaCluster, topic: str, postgres: PostgresServer) -> Iterator[Job]:
    url = postgres.migrated()
    made = Job(spark, kafka_c1.bootstrap, topic, url)
    yield made
    made.emitters.delete()


def counted(job: Job, *, client: str = "") -> Any:
    """What the tables hold; of a client alone, what all of its rows hold."""
    numbers = job.tables.numbers()
    if client:
        return {each for row, each in numbers.items() if row[2][0] == client}
    return {row: each for row, each in numbers.items() if row[2][0] != "broken"}


def test_what_was_counted_comes_to_its_sums_and_percentiles_each_report_once(job: Job) -> None:
    lognormal = numpy.random.default_rng(8)
    for second in range(0, 130, 10):
        for partition, reporter in enumerate(("gateway-1", "gateway-2")):
            latencies = [float(each) for each in lognormal.lognormal(2, 1, 300)]
            counters = [
                Counter(latencies=latencies),
                Counter(topic="it's \\N, \t a\ntopic", api="Fetch", records=second, latencies=latencies[:7]),
                Counter(principal="", topic="", rule="", cluster="", api="Metadata", records=0, bytes=0, latencies=()),
            ]
            at = NOON + timedelta(minutes=59, seconds=second)
            job.emitters.report(at, counters, reporter=reporter, partition=partition)
    job.emitters.report(NOON, [Counter()], overflowed=3, times=2)
    twice = job.emitters.made_of_last()
    job.emitters.write(b"\xff\xff nonsense")
    job.emitters.write(job.emitters.made_of_last(id="no UUID"))
    job.emitters.write(job.emitters.made_of_last(id=None, start=datetime.now(UTC) + timedelta(days=900)))
    broken = Counter(client="broken").to_proto()
    broken.latency_sketch = b"\x05\x01\x0f broken"
    job.emitters.write(job.emitters.made_of_last(id=None, start=NOON, counters=[broken]))
    done = job.run()
    assert (done.reports, done.counters, done.repeated, done.refused, done.late) == (28, 80, 1, 3, 0)
    assert counted(job) == job.emitters.numbers()
    assert counted(job, client="broken") == {(10, 1_000, 3, 0, 0)}
    for row, sketch in job.tables.sketches().items():
        truth = numpy.sort(job.emitters.truth[row].latencies)
        assert sketch.get_max_value() == pytest.approx(truth[-1])
        for rank in (0.5, 0.9, 0.99):
            off = numpy.searchsorted(truth, sketch.get_quantile(rank)) / len(truth) - rank
            assert abs(off) < 0.03 + 1 / len(truth), (row, rank)
    progress = job.tables.progress()
    assert NOON + timedelta(minutes=10) < progress["complete_until"] < datetime.now(UTC)

    job.emitters.write(twice)
    job.emitters.write(twice, partition=1)  # as after a change of the number of partitions
    job.emitters.report(NOON + timedelta(seconds=20), [Counter(latencies=(9.0,))], partition=1)
    job.emitters.report(NOON - timedelta(hours=3), [Counter()], partition=1)
    second_batch = job.run()
    assert (second_batch.reports, second_batch.repeated, second_batch.late) == (2, 2, 2)
    assert counted(job) == job.emitters.numbers()
    progress = job.tables.progress()
    told = {name: progress[name] for name in ("reports", "repeated", "late", "refused", "overflowed", "batch")}
    assert told == {"reports": 30, "repeated": 3, "late": 2, "refused": 3, "overflowed": 6, "batch": 2}


def test_a_backlog_is_taken_whole_however_unequal_its_partitions_are(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    from services.pipeline.traffic import job as traffic

    monkeypatch.setattr(traffic, "BATCH_REPORTS", 20)  # the short partition ends hours before the long one does
    for number in range(28):
        job.emitters.report(NOON + timedelta(minutes=5 * number), [Counter()], at_once=True)
    job.emitters.report(NOON + timedelta(minutes=150), [Counter()], partition=1, reporter="gateway-2", at_once=True)
    done = job.run()
    assert (done.batches, done.reports, done.late) == (2, 29, 0)
    assert job.tables.numbers() == job.emitters.numbers()


def test_days_that_are_kept_for_long_enough_go_with_their_series_and_come_back_for_nobody(job: Job) -> None:
    long_ago, ages_ago = NOON - timedelta(days=10), NOON - timedelta(days=500)
    job.emitters.report(NOON, [Counter()])
    job.emitters.report(long_ago, [Counter()])
    job.emitters.report(ages_ago, [Counter(client="of ages ago")])
    job.run(keeping=Keeping(minutes=600, hours=600, days=600))
    assert job.tables.numbers() == job.emitters.numbers()
    assert f"traffic_minutes_{long_ago:%Y%m%d}" in job.tables.days()
    assert {client for client, *_ in job.tables.series()} == {"billing", "of ages ago"}

    job.emitters.report(long_ago, [Counter()])
    job.run(keeping=Keeping(minutes=7))
    assert f"traffic_minutes_{long_ago:%Y%m%d}" not in job.tables.days()
    gone = {("traffic_minutes", long_ago), *((table, floor(ages_ago)) for table, floor in STEPS.items())}
    assert job.tables.numbers() == {row: each for row, each in job.emitters.numbers().items() if row[:2] not in gone}
    assert {client for client, *_ in job.tables.series()} == {"billing"}


def test_two_pipelines_at_once_count_each_report_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    from services.pipeline.traffic import job as traffic

    job.emitters.report(NOON, [Counter()])
    folded = traffic.folded
    others: list[traffic.RolledUp] = []

    def after_the_other(*given: Any) -> Any:
        if not others:
            others.append(traffic.RolledUp())
            others.append(job.run())
        return folded(*given)

    monkeypatch.setattr(traffic, "folded", after_the_other)
    assert job.run().reports == 0
    assert others[1].reports == 1
    assert job.tables.numbers() == job.emitters.numbers()


def test_a_batch_that_hangs_is_told_and_its_reports_count_once_when_it_goes_on(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.pipeline.spark import hang_watch
    from services.pipeline.traffic import job as traffic

    told: list[JobReport] = []
    monkeypatch.setattr(job_reports, "tell", told.append)
    monkeypatch.setattr(hang_watch, "EVERY_S", 0.2)
    job.emitters.report(NOON, [Counter()])
    job.run()
    job.emitters.report(NOON, [Counter()])
    folded = traffic.folded

    def freezing(*given: Any) -> Any:
        """Spark's workers stand still from when the batch is to be read."""
        for process in sparks_python():
            process.suspend()
            then.callback(process.resume)
        return folded(*given)

    monkeypatch.setattr(traffic, "folded", freezing)
    with ThreadPoolExecutor(1) as pool, ExitStack() as then:
        running = pool.submit(job.run)
        wait_until(lambda: told[-1].stuck_s > 2.0, "the hang is told", JOIN_S)
        then.close()
        assert running.result(JOIN_S).reports == 1
    assert job.tables.numbers() == job.emitters.numbers()


def test_a_topic_that_was_created_again_is_refused_until_it_is_accepted(job: Job) -> None:
    job.emitters.report(NOON, [Counter()])
    job.run()
    job.emitters.delete()
    job.emitters.create()
    job.emitters.report(NOON, [Counter()])
    with pytest.raises(Exception, match="is not the topic that was read so far"):
        job.run()
    job.run(accept_loss=True)
    assert job.tables.numbers() == job.emitters.numbers()


def test_an_operators_word_lets_traffic_go_on_behind_a_loss(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Answer | None] = []
    told: list[JobReport] = []
    monkeypatch.setattr(job_reports, "say", lambda line: said.append(answer_of_line(line.encode())))
    monkeypatch.setattr(job_reports, "tell", told.append)
    job.emitters.report(NOON, [Counter()])
    job.run()
    job.emitters.delete()
    job.emitters.create()
    job.emitters.report(NOON, [Counter()])
    acceptances = Acceptances()
    with pytest.raises(Exception, match="is not the topic that was read so far"):
        job.run(acceptances=acceptances)
    assert list(told[-1].lost) == [job.emitters.topic]
    acceptances.take(Acceptance("orders/1", job.emitters.topic, math.inf))
    job.run(acceptances=acceptances)
    assert said == [Answer("orders/1", True, "goes on with the topic that has the name now, from its start")]
    assert job.tables.numbers() == job.emitters.numbers()
    assert told[-1].apart == {}


@pytest.mark.goes_on
def test_the_continuous_form_takes_what_comes_and_says_that_it_is_there(job: Job) -> None:
    job.emitters.report(NOON, [Counter()])
    with job.running():
        wait_until(lambda: job.tables.numbers() == job.emitters.numbers(), "what was there is in the tables")
        told = job.tables.progress()["told"]
        wait_until(lambda: job.tables.progress()["told"] > told, "the pipeline says that it is there")
        job.emitters.report(NOON, [Counter(api="Fetch")])
        job.emitters.flush()
        wait_until(lambda: job.tables.numbers() == job.emitters.numbers(), "what came is in the tables")
