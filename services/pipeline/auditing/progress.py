"""Reports the job's progress to control in PostgreSQL: after each batch, and at intervals if there is nothing to do.

A partition is complete up to the time of the check of its end offset if the stream had reached that end. Otherwise it
is complete up to Kafka's time of the last stored record. A writer's clock may have set that time ahead, so the time of
the check is the limit. If a cluster is away, its end offsets are not known: its partitions keep the last report, and
the problem is stored beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from services.pipeline.kafka.positions import Place, Position, TopicLog

if TYPE_CHECKING:
    from services.pipeline.postgres.tables import Database


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The progress of the stream in one partition."""

    next_offset: int
    log_end: int
    complete_until: datetime | None


def partition_states(
    position: Position, logs: Mapping[str, TopicLog], looked: datetime, newest: Mapping[Place, datetime]
) -> dict[Place, PartitionState]:
    """The states of all partitions of the cluster; `newest` is Kafka's time of the last stored record."""
    states = {}
    for topic, log in logs.items():
        reached = position[topic].next if topic in position and position[topic].topic_id == log.topic_id else {}
        for partition, each in log.partitions.items():
            next_offset = reached.get(partition, each.start)
            is_complete = next_offset >= each.end
            stored_until = newest.get((topic, partition))
            complete_until = looked if is_complete else stored_until and min(stored_until, looked)
            states[topic, partition] = PartitionState(next_offset, max(each.end, next_offset), complete_until)
    return states


class ProgressTable:
    """The tables of the progress. Each call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, cluster: str, states: Mapping[Place, PartitionState], problem: str = "") -> None:
        """Writes the progress of a cluster's stream; without states, the last reported states stay."""
        rows = [
            (cluster, topic, partition, each.next_offset, each.log_end, each.complete_until)
            for (topic, partition), each in states.items()
        ]
        with self._database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "insert into audit_sources (cluster_name, problem, told) values (%s, %s, now()) "
                "on conflict (cluster_name) do update set problem = excluded.problem, told = excluded.told",
                (cluster, problem),
            )
            if not rows:
                return
            cursor.executemany(
                "insert into audit_progress values (%s, %s, %s, %s, %s, %s, now()) "
                "on conflict (cluster_name, topic, partition) do update set next_offset = excluded.next_offset, "
                "log_end = excluded.log_end, told = excluded.told, "
                "complete_until = coalesce(excluded.complete_until, audit_progress.complete_until)",
                rows,
            )
            cursor.execute(  # topics that were deleted
                "delete from audit_progress where cluster_name = %s and told < now()", (cluster,)
            )

    def forget_others(self, clusters: set[str]) -> None:
        """Deletes clusters that are not followed any more, so that they do not hold back the progress."""
        with self._database.connect() as connection:
            for table in (b"audit_sources", b"audit_progress"):
                connection.execute(
                    b"delete from " + table + b" where not (cluster_name = any(%s))", (sorted(clusters),)
                )
