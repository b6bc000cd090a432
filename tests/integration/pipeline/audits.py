"""The job `audit` between real clusters and a real PostgreSQL: what is told to it, and what it has made of that."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from mesh.rpc import admin
from services.pipeline.auditing import job as audit
from services.pipeline.auditing.streams import Followed
from services.pipeline.driver_protocol.acceptances import Acceptances
from services.pipeline.kafka.clusters import Cluster
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.postgres.tables import Database
from services.pipeline.settings import AuditSettings
from services.pipeline.spark.data_source import open_stream
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 60.0
SOURCE = KafkaSource(topics=(), clusters={}, max_batch_rows=10_000, stall_timeout_s=TIMEOUT_S, request_timeout_s=10.0)
NOW = datetime.now(UTC).replace(microsecond=0)
Event = dict[str, Any]


def event(at: datetime = NOW, **members: Any) -> Event:
    """As a sidecar writes one."""
    told: Event = {
        "id": str(uuid.uuid4()), "serviceId": "shop-1", "auditType": "PRODUCER", "topic": "orders", "partition": 0,
        "offset": 7, "correlationId": "5Cl", "auditStatus": "SUCCESS", "timestamp": int(at.timestamp() * 1000),
        **members,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value is not None}


class AuditRuns:
    """Runs of one job, with topics of its own."""

    def __init__(
        self, session: SparkSession, bootstraps: Mapping[str, str], database: str, folder: Path, topics: str
    ) -> None:
        """The first cluster is home; `topics` is what the names of its topics begin with."""
        self._session = session
        self.bootstraps = dict(bootstraps)
        self.security: dict[str, dict[str, str]] = {}
        """Further properties of clusters."""
        self.database = Database(database)
        self.folder = folder
        self.records, self.own, self.calls = f"{topics}-records", f"{topics}-own", f"{topics}-calls"
        self.settings = AuditSettings(
            audit_topics=(self.records,), audit_home_topics=(self.own,), audit_calls_topic=self.calls,
            audit_heartbeat_s=0.5,
        )  # fmt: skip
        self._made: set[tuple[str, str]] = set()

    def make(self, cluster: str, topic: str, partitions: int = 1) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstraps[cluster]})
        for future in client.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(TIMEOUT_S)
        self._made.add((cluster, topic))

    def delete(self, cluster: str, *topics: str) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstraps[cluster]})
        for future in client.delete_topics(list(topics)).values():
            future.exception(TIMEOUT_S)
        wait_until(lambda: not client.list_topics(timeout=TIMEOUT_S).topics.keys() & set(topics), "topics are gone")
        self._made -= {(cluster, topic) for topic in topics}

    def clear(self) -> None:
        for cluster in {cluster for cluster, _ in self._made}:
            topics = {topic for there, topic in self._made if there == cluster}
            self.delete(cluster, *topics, *(topic + self.settings.audit_malformed_suffix for topic in topics))

    def tell(self, cluster: str, topic: str, *values: Event | bytes | None, **how: Any) -> None:
        """Returns when all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstraps[cluster], "linger.ms": 0})
        for value in values:
            producer.produce(topic, json.dumps(value) if isinstance(value, dict) else value, **how)
        assert producer.flush(TIMEOUT_S) == 0

    def call(self, **fields: Any) -> admin.AuditEvent:
        """One of control's own."""
        made = admin.AuditEvent(audit_id=str(uuid.uuid4()), **fields)
        made.time.FromDatetime(NOW)
        return made

    def let_retention_take(self, cluster: str, topic: str, before: int) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstraps[cluster]})
        for future in client.delete_records([TopicPartition(topic, 0, before)]).values():
            future.result(TIMEOUT_S)

    def run(
        self,
        *,
        every: timedelta | None = None,
        stopping: threading.Event | None = None,
        accept_loss: bool = False,
    ) -> dict[str, Followed]:
        found = audit.run(self._session, self._plan(accept_loss), every=every, stopping=stopping)
        return {each.name: each for each in found}

    @contextmanager
    def running(self, acceptances: Acceptances | None = None) -> Iterator[None]:
        """The continuous form, beside the test."""
        stopping, every = threading.Event(), timedelta(seconds=0.2)
        running = threading.Thread(
            target=lambda: audit.run(
                self._session, self._plan(), every=every, stopping=stopping, acceptances=acceptances
            ),
            name="audit under test",
        )
        running.start()
        try:
            yield
        finally:
            stopping.set()
            running.join(TIMEOUT_S)
            assert not running.is_alive()

    def _plan(self, accept_loss: bool = False) -> audit.AuditPlan:
        def clusters() -> dict[str, Cluster]:
            home = next(iter(self.bootstraps))
            return {
                name: Cluster(name, {"bootstrap.servers": servers, **self.security.get(name, {})}, home=name == home)
                for name, servers in self.bootstraps.items()
            }

        return audit.AuditPlan(
            self.database, str(self.folder), self.settings, replace(SOURCE, accept_loss=accept_loss), clusters
        )

    def rows(self) -> list[dict[str, Any]]:
        """What is in the table, the oldest first."""
        with self.database.connect() as connection:
            cursor = connection.execute("select * from audit_events order by time, event_id")
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def ids(self) -> list[str]:
        return [str(row["event_id"]) for row in self.rows()]

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            return list(connection.execute(statement.encode()))

    def files(self) -> list[dict[str, Any]]:
        """What any reader of Parquet finds."""
        found = pyarrow.dataset.dataset(self.folder, format="parquet", partitioning="hive")
        rows: list[dict[str, Any]] = found.to_table().to_pylist()
        return rows

    def read_as_before(self, cluster: str) -> None:
        """A batch of a job of before there was a source of audit events: of records, with the checkpoint of today."""
        topics = (self.records, self.own, self.calls)
        properties = {"bootstrap.servers": self.bootstraps[cluster]}
        reading = replace(SOURCE, topics=topics, clusters={cluster: properties}, skip_absent=True, accept_replaced=True)
        query = (
            open_stream(reading, self._session)
            .writeStream.foreachBatch(lambda records, _batch: records.count())
            .option("checkpointLocation", str(self.folder / f"cluster={cluster}" / "_checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(TIMEOUT_S))

    def forget_last_commit(self, cluster: str) -> None:
        """As if the driver had been killed when all was written and nothing was noted."""
        commits = self.folder / f"cluster={cluster}" / "_checkpoint" / "commits"
        newest = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)

    def malformed(self, cluster: str, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
        """Keys, values and headers in the dead-letter topic."""
        place = TopicPartition(topic + self.settings.audit_malformed_suffix, 0, 0)
        consumer = Consumer({"bootstrap.servers": self.bootstraps[cluster], "group.id": "none"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(place.topic, 0), TIMEOUT_S)
            consumer.assign([place])
            found = consumer.consume(end, TIMEOUT_S)
        finally:
            consumer.close()
        return [(each.key(), each.value(), dict(each.headers() or [])) for each in found]  # type: ignore[arg-type]
