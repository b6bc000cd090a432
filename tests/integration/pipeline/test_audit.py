"""The job `audit`: what became of records, of all clusters, once in PostgreSQL and once in Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.pipeline.audits import AuditRuns

WITHIN_S = 60.0
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def audit_database(postgres: PostgresServer) -> str:
    url = postgres()
    migrate(url)
    return url


@pytest.fixture
def audits(
    spark: SparkSession,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    audit_database: str,
    tmp_path: Path,
    unique_name: Callable[[str], str],
) -> Iterator[AuditRuns]:
    from tests.integration.pipeline.audits import AuditRuns

    bootstraps = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    runs = AuditRuns(spark, bootstraps, audit_database, tmp_path / "audit", unique_name("audit"))
    with runs.database.connect() as connection:
        for table in (b"audit_events", b"audit_progress", b"audit_sources"):
            connection.execute(b"truncate " + table)
    yield runs
    runs.clear()


def test_events_of_all_clusters_are_there_once_however_often_they_are_read(audits: AuditRuns) -> None:
    from tests.integration.pipeline.audits import NOW, event

    failed = event(
        auditType="REACTIVE_CONSUMER", auditStatus="FAILURE", traceabilityId="t-1", traceId=TRACE, key="bob",
        stacktrace="boom\n\tat line 1", serviceId="bill-1",
    )  # fmt: skip
    plain = event(NOW - timedelta(minutes=1), partition=None, offset=None, correlationId=None)
    late, too_late = event(NOW - timedelta(days=5)), event(NOW - timedelta(days=90))
    of_gateway = event(serviceId="gateway-1")
    call = audits.call(
        actor="ada", method="/mesh.v1.RuleService/SetRule", resource="rules/a", trace_id=TRACE, code="NOT_FOUND",
        problem="no cluster",
    )  # fmt: skip
    audits.make("c1", audits.records, partitions=2)
    audits.make("c1", audits.own)
    audits.make("c1", audits.calls)
    audits.tell("c1", audits.records, plain, too_late, partition=0)
    audits.tell("c1", audits.records, plain, partition=1)  # its writer was not sure that it was heard
    audits.tell("c1", audits.own, of_gateway)
    audits.tell("c1", audits.calls, call.SerializeToString())
    audits.make("c2", audits.records)
    audits.tell("c2", audits.records, failed, late)

    first = audits.run()
    assert {name: (each.records, each.stored, each.malformed) for name, each in first.items()} == {
        "c1": (5, 3, 0), "c2": (2, 2, 0)
    }  # fmt: skip
    rows = {str(row["event_id"]): row for row in audits.rows()}
    assert rows.keys() == {call.audit_id, *(each["id"] for each in (plain, failed, late, of_gateway))}
    shown = rows[failed["id"]]
    assert {name: shown.pop(name) for name in ("time", "event_id")}["time"] == NOW
    assert shown == {
        "cluster_name": "c2", "service_id": "bill-1", "audit_type": "REACTIVE_CONSUMER", "audit_status": "FAILURE",
        "topic": "orders", "partition": 0, "offset": 7, "correlation_id": "5Cl", "traceability_id": "t-1",
        "trace_id": TRACE, "key": "bob", "stacktrace": "boom\n\tat line 1", "actor": None, "method": None,
    }  # fmt: skip
    assert [rows[plain["id"]][name] for name in ("partition", "offset", "correlation_id", "stacktrace")] == [None] * 4
    of_control = rows[call.audit_id]
    assert [of_control[name] for name in ("service_id", "audit_type", "audit_status", "key", "actor", "method")] == [
        "control", "CONTROL", "FAILURE", "rules/a", "ada", "/mesh.v1.RuleService/SetRule"
    ]  # fmt: skip
    assert (of_control["stacktrace"], of_control["trace_id"]) == ("NOT_FOUND no cluster", TRACE)
    files = audits.files()
    assert sorted((row["cluster"], row["source_topic"], row["event_id"]) for row in files) == sorted(
        [("c1", audits.records, each["id"]) for each in (plain, plain, too_late)]
        + [("c1", audits.own, of_gateway["id"]), ("c1", audits.calls, call.audit_id)]
        + [("c2", audits.records, each["id"]) for each in (failed, late)]
    )
    assert {str(row["day"]) for row in files if row["event_id"] == late["id"]} == {
        (NOW - timedelta(days=5)).date().isoformat()
    }
    assert audits.select("select cluster_name, problem from audit_sources order by 1") == [("c1", ""), ("c2", "")]
    progress = "select cluster_name, topic, partition, next_offset, log_end from audit_progress order by 1, 2, 3"
    assert audits.select(progress) == [
        ("c1", audits.calls, 0, 1, 1), ("c1", audits.own, 0, 1, 1), ("c1", audits.records, 0, 2, 2),
        ("c1", audits.records, 1, 1, 1), ("c2", audits.records, 0, 2, 2),
    ]  # fmt: skip
    assert audits.select("select count(*) from audit_progress where complete_until < now()") == [(5,)]

    audits.forget_last_commit("c1")
    audits.forget_last_commit("c2")
    audits.tell("c2", audits.records, event())
    again = audits.run()
    assert {name: (each.records, each.stored) for name, each in again.items()} == {"c1": (5, 0), "c2": (3, 1)}
    assert len(audits.rows()) == len(rows) + 1
    assert len(audits.files()) == len(files) + 1


def test_what_is_no_event_is_kept_as_it_came_with_the_reason(audits: AuditRuns) -> None:
    from tests.integration.pipeline.audits import NOW, event

    good = event()
    broken: dict[bytes | None, str] = {
        None: "it has no value",
        b"\xff\xfe": "it is no UTF-8",
        b"boom": "it is no JSON object",
        b'{"id": ': "it is no JSON object",
        b"[{}]": "it is no JSON object",
        json.dumps(event(id="seven")).encode(): "id is no UUID",
        json.dumps(event(auditType=None)).encode(): "auditType is missing",
        json.dumps(event(auditStatus="")).encode(): "auditStatus is missing",
        json.dumps(event(timestamp="soon")).encode(): "timestamp is no time in milliseconds",
        json.dumps(event(NOW + timedelta(days=3))).encode(): "timestamp is more than a day ahead of the clocks here",
    }
    audits.make("c1", audits.records)
    audits.tell("c1", audits.records, *broken, good, key=b"\x00k", headers=[("h", b"\xff")])
    [found] = [each for each in audits.run().values() if each.records]
    assert (found.records, found.malformed, found.stored) == (len(broken) + 1, len(broken), 1)
    assert audits.ids() == [row["event_id"] for row in audits.files()] == [good["id"]]

    kept = audits.malformed("c1", audits.records)
    assert {value: headers["dlq.problem"].decode() for _, value, headers in kept} == broken
    places = [int(headers["dlq.offset"]) for _, _, headers in kept]
    assert sorted(places) == list(range(len(broken)))
    key, _, headers = kept[0]
    assert (key, headers["h"], headers["dlq.cluster"], headers["dlq.topic"], headers["dlq.partition"]) == (
        b"\x00k", b"\xff", b"c1", audits.records.encode(), b"0"
    )  # fmt: skip


def test_a_cluster_that_is_away_holds_up_no_other_and_topics_may_come_later_and_come_again(audits: AuditRuns) -> None:
    from tests.integration.pipeline.audits import event

    away = audits.bootstraps["c3"] = f"127.0.0.1:{free_block(1)}"
    events = [event() for _ in range(3)]
    first, second, third = events

    def is_there(wanted: dict[str, object]) -> bool:
        return wanted["id"] in audits.ids()

    with audits.running():
        audits.make("c1", audits.records)
        audits.tell("c1", audits.records, first)
        wait_until(lambda: is_there(first), "a topic that came later is read", WITHIN_S)
        audits.make("c2", audits.records)
        audits.tell("c2", audits.records, second)
        wait_until(lambda: is_there(second), "that of the other cluster, too", WITHIN_S)
        audits.delete("c1", audits.records)
        audits.make("c1", audits.records)
        audits.tell("c1", audits.records, third)
        wait_until(lambda: is_there(third), "a topic that was created again has the same offsets", WITHIN_S)
        told = "select problem from audit_sources where cluster_name = 'c3'"
        wait_until(lambda: away in "".join(row[0] for row in audits.select(told)), "it is said who is away", WITHIN_S)
    del audits.bootstraps["c3"]
    audits.run()  # what was cut off between the table and Parquet
    assert sorted(audits.ids()) == sorted(each["id"] for each in events)
    assert sorted(row["event_id"] for row in audits.files()) == sorted(audits.ids())
