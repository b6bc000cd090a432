"""The audit job is killed with all its processes while PostgreSQL takes its rows: no event is lost or doubled, neither
in the table nor in Parquet, by the ends of the logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.audit_topics import AuditTopic
from tests.soak.pipeline.killed_jobs import KilledJob

EVENTS = 30_000
"""In each cluster at first, and some more after each kill."""
MORE = 2_000
BATCH_ROWS = 5_000
KILLS = 5
NOTICED_S = 60.0
WRITING = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'kafka-mesh pipeline' and state = 'active'
    and (query ilike 'copy %' or query ilike 'insert into "audit_events"%')
"""


def audit_job(clusters: dict[str, str], topic: str, database: str, folder: Path) -> KilledJob:
    """It ends by itself when it has brought over what is there."""
    told = [word for name, servers in clusters.items() for word in ("--cluster", f"{name}={servers}")]
    return KilledJob(
        folder.with_suffix(".log"),
        *("audit", "--to", str(folder), *told),
        MAX_BATCH_ROWS=str(BATCH_ROWS),
        DATABASE_URL=database,
        AUDIT_TOPICS=topic,
        AUDIT_HOME_TOPICS=f"{topic}-records",
        AUDIT_CALLS_TOPIC=f"{topic}-calls",
        AUDIT_KEPT_DAYS="3650",
    )


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.migrated()


@pytest.fixture
def topics(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[dict[str, AuditTopic]]:
    made = {name: AuditTopic(each.bootstrap, topic) for name, each in (("c1", kafka_c1), ("c2", kafka_c2))}
    yield made
    for each in made.values():
        each.clear()


@pytest.mark.timeout(7_200)
def test_killed_in_mid_write(
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    topics: dict[str, AuditTopic],
    topic: str,
    database: str,
    tmp_path: Path,
) -> None:
    need_spark()
    folder = tmp_path / "audit"
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    for each in topics.values():
        each.tell(EVENTS)

    def batches() -> int:
        return sum(each.name.isdecimal() for each in folder.glob("cluster=*/_checkpoint/commits/*"))

    with psycopg.connect(database, autocommit=True) as connection:

        def is_writing() -> bool:
            return batches() > before and _count(connection, WRITING) > 0

        written_at_kills = []
        for _ in range(KILLS):
            before = batches()
            audit_job(clusters, topic, database, folder).kill_when(is_writing, "PostgreSQL takes rows")
            wait_until(lambda: _count(connection, WRITING) == 0, "PostgreSQL has noticed", NOTICED_S)
            written_at_kills.append(_count(connection, "select count(*) from audit_events"))
            for each in topics.values():
                each.tell(MORE)
        audit_job(clusters, topic, database, folder).finish()
        in_table: dict[str, tuple[int, int]] = {
            name: (rows, ids)
            for name, rows, ids in connection.execute(
                "select cluster_name, count(*), count(distinct event_id) from audit_events group by 1"
            )
        }
    in_files = _files(folder)
    print(
        f"rows at the kills: {written_at_kills}; at the end: {in_table}, Parquet {len(in_files)}, batches {batches()}"
    )
    for name, each in topics.items():
        places = each.places()
        assert len(places) == EVENTS + KILLS * MORE
        assert in_table[name] == (len(places), len(places))
        read = [(row["source_partition"], row["source_offset"]) for row in in_files if row["cluster"] == name]
        assert len(read) == len(places)
        assert set(read) == places


def _count(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def _files(folder: Path) -> list[dict[str, Any]]:
    """As any reader of Parquet finds them."""
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    rows: list[dict[str, Any]] = found.to_table(columns=["cluster", "source_partition", "source_offset"]).to_pylist()
    return rows
