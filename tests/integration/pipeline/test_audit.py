"""The job `audit`: what became of records, of all clusters, once in PostgreSQL and once in Parquet."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptance, Acceptances, Answer, answer_of_line
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.pipeline.audits import AuditRuns

WITHIN_S = 60.0
DAY_MS = 86_400_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


def what_is_no_event() -> dict[bytes | None, str]:
    """And why."""
    from tests.integration.pipeline.audits import NOW, event

    return {
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


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine has another zone than Spark and PostgreSQL."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def test_events_of_all_clusters_are_there_once_and_what_is_none_is_kept_with_the_reason(
    audits: AuditRuns, far_from_greenwich: None
) -> None:
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
    broken = what_is_no_event()
    audits.make("c1", audits.records, partitions=2)
    audits.make("c1", audits.own)
    audits.make("c1", audits.calls)
    audits.tell("c1", audits.records, plain, too_late, partition=0)
    again = {**plain, "timestamp": plain["timestamp"] + 900}  # its writer was not sure that it was heard
    audits.tell("c1", audits.records, again, partition=1)
    audits.tell("c1", audits.own, of_gateway)
    audits.tell("c1", audits.own, *broken, key=b"\x00k", headers=[("h", b"\xff")])
    audits.tell("c1", audits.calls, call.SerializeToString())
    audits.make("c2", audits.records)
    audits.tell("c2", audits.records, failed, late)

    first = audits.run()
    assert {name: (each.records, each.stored, each.malformed) for name, each in first.items()} == {
        "c1": (5 + len(broken), 3, len(broken)), "c2": (2, 2, 0)
    }  # fmt: skip
    newest = first["c1"].newest[audits.records, 0]
    assert NOW - timedelta(minutes=1) < newest < datetime.now(UTC) + timedelta(minutes=1)
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
        ("c1", audits.calls, 0, 1, 1), ("c1", audits.own, 0, 1 + len(broken), 1 + len(broken)),
        ("c1", audits.records, 0, 2, 2), ("c1", audits.records, 1, 1, 1), ("c2", audits.records, 0, 2, 2),
    ]  # fmt: skip
    assert audits.select("select count(*) from audit_progress where complete_until < now()") == [(5,)]

    kept = audits.malformed("c1", audits.own)
    assert {value: headers["dlq.problem"].decode() for _, value, headers in kept} == broken
    assert sorted(int(headers["dlq.offset"]) for _, _, headers in kept) == list(range(1, len(broken) + 1))
    key, _, headers = kept[0]
    assert (key, headers["h"], headers["dlq.cluster"], headers["dlq.topic"], headers["dlq.partition"]) == (
        b"\x00k", b"\xff", b"c1", audits.own.encode(), b"0"
    )  # fmt: skip

    audits.forget_last_commit("c1")
    audits.forget_last_commit("c2")
    audits.tell("c2", audits.records, event())
    audits.bootstraps["c3"], audits.security["c3"] = "127.0.0.1:1", {"sasl.password": "${env:NOT_HERE}"}
    again = audits.run()
    assert {name: (each.records, each.stored) for name, each in again.items()} == {
        "c1": (5 + len(broken), 0), "c2": (3, 1), "c3": (0, 0)
    }  # fmt: skip
    [problem] = audits.select("select problem from audit_sources where cluster_name = 'c3'")
    assert problem[0].startswith("cluster 'c3': sasl.password: ${env:NOT_HERE} refers to an environment variable")
    assert len(audits.rows()) == len(rows) + 1
    assert len(audits.files()) == len(files) + 1


def test_while_postgresql_is_away_malformed_events_are_not_told_again_and_again(
    audits: AuditRuns, spark: SparkSession, kafka_c1: KafkaCluster
) -> None:
    import pyarrow

    from services.pipeline.auditing.dead_letters import DeadLetters
    from services.pipeline.auditing.folders import ClusterFolder
    from services.pipeline.auditing.job import AuditSinks
    from services.pipeline.auditing.pieces import piece_of
    from services.pipeline.postgres.day_partitions import DayPartitions
    from services.pipeline.postgres.tables import Database
    from services.pipeline.storage.stores import Store
    from tests.integration.pipeline.audits import NOW, event
    from tests.unit.pipeline.told import events

    folder = ClusterFolder(spark, str(audits.folder), "c1")

    def sinks(database: Database) -> AuditSinks:
        letters = DeadLetters("c1", {"bootstrap.servers": kafka_c1.bootstrap}, ".malformed", WITHIN_S)
        days = DayPartitions(database, "audit_events", unique=("event_id",))
        return AuditSinks(database, days, 30, folder, Store(folder.path), letters)

    noon = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=1)
    once = event(noon)
    # its writer set the time anew with each attempt: the first one is counted, and one on each side of a midnight
    told = [once, *({**once, "timestamp": once["timestamp"] - earlier} for earlier in (1, DAY_MS)), event(noon)]
    values = [b"boom", *(json.dumps(each).encode() for each in told)]

    def pieces(values: list[bytes]) -> DataFrame:
        piece = piece_of(events(*values, topic=audits.records, partition=0), audits.records, 0)
        return spark.createDataFrame(pyarrow.Table.from_batches([piece]))

    audits.make("c1", audits.records)
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            sinks(Database("postgresql://mesh@127.0.0.1:1/mesh")).write(pieces(values), 0)
    written = sinks(audits.database).write(pieces(values), 0)
    assert (written.records, written.stored, written.malformed) == (5, 3, 1)
    assert sorted(audits.ids()) == sorted([once["id"], once["id"], told[-1]["id"]])
    assert sinks(audits.database).write(pieces(values[1:]), 0).stored == 0
    assert len(audits.malformed("c1", audits.records)) == 1
    assert len(audits.files()) == 4


def test_a_checkpoint_of_before_events_were_made_where_kafka_is_read_goes_on_where_it_stood(
    audits: AuditRuns, spark: SparkSession
) -> None:
    from tests.integration.pipeline.audits import event

    before, again, since = event(), event(), event()
    audits.make("c1", audits.records)
    del audits.bootstraps["c2"]
    for told in (before, again):
        audits.tell("c1", audits.records, told)
        audits.read_as_before("c1")
    audits.forget_last_commit("c1")
    audits.tell("c1", audits.records, since)
    done = audits.run()["c1"]
    assert (done.problem, done.records, done.batches) == ("", 2, 2)
    assert sorted(audits.ids()) == sorted([again["id"], since["id"]])


def test_parquet_that_was_complete_stays_when_kafka_has_lost_its_records_before_the_batch_was_noted(
    audits: AuditRuns,
) -> None:
    from tests.integration.pipeline.audits import event

    del audits.bootstraps["c2"]
    lost, created_again = event(), event()
    audits.make("c1", audits.records)
    audits.make("c1", audits.own)
    audits.tell("c1", audits.records, lost)
    audits.tell("c1", audits.own, created_again)
    audits.run()
    audits.forget_last_commit("c1")
    audits.let_retention_take("c1", audits.records, before=1)
    audits.delete("c1", audits.own)
    audits.make("c1", audits.own)
    since = [event(), event()]
    audits.tell("c1", audits.own, *since)
    done = audits.run(accept_loss=True)["c1"]
    assert (done.problem, done.stored) == ("", 2)
    of_all = sorted(each["id"] for each in (lost, created_again, *since))
    assert sorted(audits.ids()) == of_all
    assert sorted(row["event_id"] for row in audits.files()) == of_all


@pytest.mark.goes_on
def test_a_stream_goes_on_behind_a_loss_when_an_operator_says_so_and_only_behind_that_one(
    audits: AuditRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.integration.pipeline.audits import event

    said: list[Answer | None] = []
    lost: list[list[str]] = []
    monkeypatch.setattr(job_reports, "say", lambda line: said.append(answer_of_line(line.encode())))
    monkeypatch.setattr(job_reports, "tell", lambda report: lost.append(list(report.lost)))
    del audits.bootstraps["c2"]
    audits.make("c1", audits.records)
    first, taken, kept, later = event(), event(), event(), event()
    audits.tell("c1", audits.records, first)
    audits.run()
    audits.tell("c1", audits.records, taken, kept)
    audits.let_retention_take("c1", audits.records, before=2)
    topic, acceptances = f"c1/{audits.records}", Acceptances()
    with audits.running(acceptances):
        wait_until(lambda: lost and lost[-1] == [topic], "the loss is told", WITHIN_S)
        acceptances.take(Acceptance("orders/1", topic, math.inf))
        wait_until(lambda: said, "the order is answered", WITHIN_S)
        assert said == [Answer("orders/1", True, f"goes on without what retention took: {topic}/0 offsets 1 to 1")]
        assert sorted(audits.ids()) == sorted([first["id"], kept["id"]])
        audits.tell("c1", audits.records, later)
        wait_until(lambda: later["id"] in audits.ids(), "it goes on", WITHIN_S)
    audits.tell("c1", audits.records, event(), event())
    audits.let_retention_take("c1", audits.records, before=5)
    with audits.running(acceptances):
        wait_until(lambda: lost[-1] == [topic], "a later loss needs another word", WITHIN_S)


@pytest.mark.goes_on
def test_a_topic_that_lost_events_is_set_apart_and_the_others_of_its_cluster_are_read(audits: AuditRuns) -> None:
    from tests.integration.pipeline.audits import event

    del audits.bootstraps["c2"]
    audits.make("c1", audits.records)
    audits.make("c1", audits.own)
    first, taken, kept, by_hand, other = (event() for _ in range(5))
    audits.tell("c1", audits.records, first)
    audits.run()
    audits.tell("c1", audits.records, taken, kept)
    audits.let_retention_take("c1", audits.records, before=2)
    audits.tell("c1", audits.own, by_hand)
    topic, acceptances = f"c1/{audits.records}", Acceptances()
    apart = f"topic {topic} is set apart: {topic}/0 begins at offset 2, the checkpoint stands at 1: retention took 1"
    done = audits.run()["c1"]
    assert done.trouble.startswith(apart)
    assert sorted(audits.ids()) == sorted([first["id"], by_hand["id"]])

    def problem() -> str:
        return str(audits.select("select problem from audit_sources where cluster_name = 'c1'")[0][0])

    def is_behind() -> bool:
        """Whether the table is said to be complete later for the topic that is read on."""
        found = dict(audits.select("select topic, complete_until from audit_progress"))
        lost, read = found.get(audits.records), found.get(audits.own)
        return lost is not None and read is not None and lost < read

    with audits.running(acceptances):
        audits.tell("c1", audits.own, other)
        wait_until(lambda: other["id"] in audits.ids(), "the other topic is read", WITHIN_S)
        wait_until(lambda: problem().startswith(apart), "the topic is named", WITHIN_S)
        wait_until(is_behind, "the table is not complete for the topic", WITHIN_S)
        assert sorted(audits.ids()) == sorted([first["id"], by_hand["id"], other["id"]])
        acceptances.take(Acceptance("orders/1", topic, math.inf))
        wait_until(lambda: kept["id"] in audits.ids(), "the topic goes on behind the gap", WITHIN_S)
        wait_until(lambda: not problem(), "no topic is set apart", WITHIN_S)


@pytest.mark.goes_on
def test_a_topic_that_is_deleted_or_made_again_does_not_stop_the_others_of_its_cluster(audits: AuditRuns) -> None:
    from tests.integration.pipeline.audits import event

    del audits.bootstraps["c2"]
    audits.make("c1", audits.records)
    audits.make("c1", audits.own)
    told = []

    def is_read(topic: str) -> None:
        told.append(event())
        audits.tell("c1", topic, told[-1])
        wait_until(lambda: told[-1]["id"] in audits.ids(), "the event is in the table", WITHIN_S)

    with audits.running():
        is_read(audits.records)
        is_read(audits.records)
        audits.delete("c1", audits.records)
        is_read(audits.own)
        audits.make("c1", audits.records)
        is_read(audits.own)
        is_read(audits.records)
    audits.run()  # the stop has cut off the last batch
    ids = sorted(each["id"] for each in told)
    assert sorted(audits.ids()) == ids
    assert sorted(row["event_id"] for row in audits.files()) == ids
