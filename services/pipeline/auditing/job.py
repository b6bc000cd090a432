"""The job `audit`: audit events of records, from the audit topics of all clusters, into PostgreSQL and Parquet.

    `audit_events` (PostgreSQL)                            one row for each event id, a table a day.
    `FOLDER/cluster=c1/day=2026-11-21/batch=17/*.parquet`  one row for each record of the topics.
    `FOLDER/cluster=c1/_checkpoint/`                       the position of the cluster's stream; belongs to the data.
    `TOPIC.malformed` (Kafka, same cluster)                records that are no audit events, with the reason.

1. Each cluster has a stream of its own: a cluster that is away or slow delays no other (`auditing/streams.py`). A
   topic that lost records is set apart and waits for an operator; the other topics of its cluster are read on.
2. A batch that was cut off is run again over the same records, or over the records that are left of them. PostgreSQL
   then has their ids already. Complete Parquet files stay (`auditing/day_files.py`). Both stores have each record once,
   whenever the driver is killed. Malformed records are sent when all other records are stored. So they are sent twice
   only if the driver is killed at that moment, and not at each attempt while PostgreSQL is away.
3. An event that its writer sent twice has one id. So it is in PostgreSQL once a day, whatever time the second copy has.
   In Parquet it is as often as in Kafka. Topics may be deleted and created again: offsets don't identify an event, ids
   do.
4. A row goes to the table of its day, also if it is late; events that are older than the tables go to Parquet only. An
   event from a clock more than a day ahead of Kafka's is malformed, because no query for its real time would find it.
   Kafka's time counts up to the time at which the batch was planned, which the checkpoint holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import structlog
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from services.pipeline.auditing.data_source import stream_events
from services.pipeline.auditing.day_files import NAMED, DayFiles
from services.pipeline.auditing.dead_letters import COLUMNS as OF_LETTERS
from services.pipeline.auditing.dead_letters import DeadLetters
from services.pipeline.auditing.events import AHEAD, COLUMNS
from services.pipeline.auditing.folders import ClusterFolder, delete_days_before
from services.pipeline.auditing.pieces import events_alone, malformed, schema_of, well
from services.pipeline.auditing.progress import ProgressTable
from services.pipeline.auditing.streams import Followed, Following
from services.pipeline.driver_protocol.acceptances import Acceptances
from services.pipeline.kafka.clusters import ClustersError
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.postgres.day_partitions import DayPartitions
from services.pipeline.postgres.tables import Database, Table, write_opened
from services.pipeline.settings import AuditSettings
from services.pipeline.spark.hang_watch import HangWatch
from services.pipeline.spark.session import first_line
from services.pipeline.storage.stores import Store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from services.pipeline.kafka.clusters import Cluster

AUDIT_EVENTS = Table("audit_events", key=("time", "event_id"), columns=COLUMNS)
MADE_AHEAD = AHEAD.days + 1
"""Number of days ahead for which tables exist before their first event; see AHEAD."""
PATIENCE = {"reconnect.backoff.ms": "1000", "log_level": "2"}
"""Settings for a cluster that is away: one attempt a second to connect, and no log line for each attempt.

The job itself logs the outage once.
"""
FETCHED_AHEAD = {"queued.max.messages.kbytes": "8192"}
"""The limit of each task; a piece is 10 to 20 MB, and records beyond the end of its spans are fetched in vain."""
ROWS_OF_A_FILE = 50_000
"""Rows for each file of a batch; each day also has a file of its own."""
UPKEEP_S = 3600.0
"""Seconds between two checks for old days."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BatchWritten:
    """The result of a batch."""

    records: int
    malformed: int
    stored: int
    """New rows in PostgreSQL; the other events were there, or are older than the kept days."""
    newest: dict[tuple[str, int], datetime]
    """Kafka's time of the last record of each partition."""


@dataclass(frozen=True, slots=True)
class AuditSinks:
    """The stores for the events of one cluster."""

    database: Database
    days: DayPartitions
    kept_days: int
    folder: ClusterFolder
    store: Store
    """The same folder, as tasks access it."""
    dead_letters: DeadLetters

    def write(self, pieces: DataFrame, batch: int) -> BatchWritten:
        """Returns when all records are in all stores."""
        begun = time.monotonic()
        pieces = pieces.persist()
        try:
            about = _about(pieces)
            read = time.monotonic()
            first_day = today() - timedelta(days=self.kept_days)
            wanted = {day for day in about.days if day >= first_day}
            self.days.make(wanted)
            events = events_alone(pieces)
            with ThreadPoolExecutor(1, "audit files") as beside:  # each of the two works while the other waits
                as_here = inheritable_thread_target(pieces.sparkSession)  # a stopped stream cancels both
                filed = events.coalesce(1 + about.records // ROWS_OF_A_FILE)
                filing = beside.submit(as_here(partial(self._write_files, filed, batch)))
                recent = partial(well, AUDIT_EVENTS.columns, first_day)
                stored = write_opened(events, recent, AUDIT_EVENTS, self.database).stored if wanted else 0
                in_table = time.monotonic()
            filing.result()
            if about.malformed:
                self.folder.check()
                self.dead_letters.write(events.mapInArrow(partial(malformed, OF_LETTERS), schema_of(OF_LETTERS)))
        except BaseException:
            self.days.forget()  # a dropped day is then created again
            raise
        finally:
            pieces.unpersist()
        written = BatchWritten(about.records, about.malformed, stored, about.newest)
        log.info(
            "batch written", folder=self.folder.path, batch=batch, records=written.records, stored=stored,
            malformed=about.malformed, seconds=round(time.monotonic() - begun, 2), to_read_s=round(read - begun, 2),
            to_store_s=round(in_table - read, 2),
        )  # fmt: skip
        return written

    def _write_files(self, events: DataFrame, batch: int) -> None:
        if not self.folder.is_decided(batch):
            self.folder.clear_stage()
            written = events.mapInArrow(DayFiles(self.store, batch).write, from_arrow_schema(NAMED)).collect()
            self.folder.decide(batch, [(each["day"], each["name"]) for each in written])
        self.folder.publish(batch)


@dataclass(slots=True)
class _About:
    """The facts of a batch that are known before its events are read."""

    records: int = 0
    malformed: int = 0
    days: set[date] = field(default_factory=set)
    newest: dict[tuple[str, int], datetime] = field(default_factory=dict)


def _about(pieces: DataFrame) -> _About:
    about = _About()
    newest_ms = f.unix_millis("newest").alias("newest_ms")  # a timestamp would arrive in this machine's time zone
    for piece in pieces.select("source_topic", "source_partition", "records", "malformed", newest_ms, "days").collect():
        about.records += piece["records"]
        about.malformed += piece["malformed"]
        about.days.update(piece["days"])
        if piece["newest_ms"] is not None:
            place = piece["source_topic"], piece["source_partition"]
            newest = datetime.fromtimestamp(piece["newest_ms"] / 1000, UTC)
            about.newest[place] = max(newest, about.newest.get(place, newest))
    return about


def today() -> date:
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The source and the sinks of a run."""

    database: Database
    folder: str
    settings: AuditSettings
    source: KafkaSource
    """The limits of reading; topics and clusters are added later."""
    clusters: Callable[[], Mapping[str, Cluster]]
    """Returns the current clusters."""


def run(
    session: SparkSession,
    plan: AuditPlan,
    *,
    every: timedelta | None = None,
    stopping: threading.Event | None = None,
    acceptances: Acceptances | None = None,
) -> list[Followed]:
    """Stores the existing events, and returns the state of each cluster; with `every`, continues until `stopping`."""
    days = DayPartitions(plan.database, AUDIT_EVENTS.name, unique=("event_id",))
    progress = ProgressTable(plan.database)
    upkeep = Upkeep(session, plan, days)
    upkeep.look()
    folders: dict[str, ClusterFolder] = {}

    def followed() -> dict[str, Followed]:
        upkeep.look_if_due()
        found = plan.clusters()
        for name in found.keys() - folders.keys():
            folders[name] = ClusterFolder(session, plan.folder, name)
        return {name: _followed(session, plan, days, each, folders[name], every) for name, each in found.items()}

    heartbeat = timedelta(seconds=plan.settings.audit_heartbeat_s)
    following = Following(
        followed, progress, heartbeat, goes_on=every is not None, acceptances=acceptances or Acceptances()
    )
    return following.run(stopping or threading.Event())


def _followed(
    session: SparkSession,
    plan: AuditPlan,
    days: DayPartitions,
    cluster: Cluster,
    folder: ClusterFolder,
    every: timedelta | None,
) -> Followed:
    settings = plan.settings
    topics = settings.audit_topics
    if cluster.home:
        topics += (*settings.audit_home_topics, settings.audit_calls_topic)
    try:
        properties = cluster.properties
    except ClustersError as error:
        return Followed(cluster.name, plan.source, _begins_never(str(error)), folder.position)
    sinks = AuditSinks(
        database=plan.database,
        days=days,
        kept_days=settings.audit_kept_days,
        folder=folder,
        store=Store(folder.path, settings.audit_store_options),
        dead_letters=DeadLetters(
            cluster.name, properties, settings.audit_malformed_suffix, plan.source.request_timeout_s
        ),
    )
    source = replace(
        plan.source,
        topics=tuple(sorted(set(topics))),
        clusters={cluster.name: PATIENCE | FETCHED_AHEAD | properties},
        skip_absent=True,
        accept_replaced=True,
        sets_apart=True,
    )
    calls_topic = settings.audit_calls_topic if cluster.home else ""

    def begin(each: Followed) -> StreamingQuery:
        folder.take()

        def write(pieces: DataFrame, batch: int) -> None:
            written = sinks.write(pieces, batch)
            each.newest |= written.newest
            each.records += written.records
            each.malformed += written.malformed
            each.stored += written.stored
            each.batches += 1
            each.has_news.set()

        trigger = {"availableNow": True} if every is None else {"processingTime": f"{every.total_seconds()} seconds"}
        return (
            stream_events(session, replace(source, accept_loss_of=tuple(sorted(each.accepting))), calls_topic)
            .writeStream.queryName(f"audit of {cluster.name}")
            .foreachBatch(write)
            .option("checkpointLocation", folder.checkpoint)
            .trigger(**trigger)
            .start()
        )

    return Followed(cluster.name, source, begin, folder.position, hangs=HangWatch(session))


def _begins_never(reason: str) -> Callable[[Followed], StreamingQuery]:
    """The start function of a cluster without its secret; a later request for the clusters may return the secret."""

    def begin(_: Followed) -> StreamingQuery:
        raise ClustersError(reason)

    return begin


class Upkeep:
    """Creates the tables of coming days, and drops old days."""

    def __init__(self, session: SparkSession, plan: AuditPlan, days: DayPartitions) -> None:
        self._session = session
        self._plan = plan
        self._days = days
        self._due = float("-inf")

    def look_if_due(self) -> None:
        """Logs an error of PostgreSQL: a later call tries again, and batches create the days that they need."""
        if time.monotonic() < self._due:
            return
        try:
            self.look()
        except psycopg.Error as error:
            log.warning("days of audit events could not be created or dropped", reason=first_line(error))

    def look(self) -> None:
        settings = self._plan.settings
        self._days.make(today() + timedelta(days=number) for number in range(MADE_AHEAD + 1))
        dropped = self._days.drop_before(today() - timedelta(days=settings.audit_kept_days))
        if dropped:
            log.info("old days dropped", table=AUDIT_EVENTS.name, days=dropped)
        if settings.audit_folder_kept_days:
            first = today() - timedelta(days=settings.audit_folder_kept_days)
            delete_days_before(self._session, self._plan.folder, first)
        self._due = time.monotonic() + UPKEEP_S
