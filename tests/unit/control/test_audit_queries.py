"""What may be asked of the table of audit events, and how it is said that the table is behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mesh import durations
from mesh.rpc import audit
from services.control.domain.audit.queries import (
    HOW_TO_START,
    WITHOUT_IDS,
    PartitionProgress,
    SourceProgress,
    audit_query,
    freshness,
)
from services.control.domain.errors import InvalidField

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EVENT = "8e9a2c0e-8f57-4a43-9a2e-0c6b4f2f7a11"


def asked(since: datetime | None = None, until: datetime | None = None, **fields: Any) -> audit.QueryAuditRequest:
    request = audit.QueryAuditRequest(**fields)
    if since is not None:
        request.start_time.FromDatetime(since)
    if until is not None:
        request.end_time.FromDatetime(until)
    return request


@pytest.mark.parametrize(
    "ids",
    [{"correlation_id": "c"}, {"traceability_id": "t"}, {"trace_id": "w"}, {"event_id": EVENT},
     {"topic": "orders", "partition": 0, "offset": 7}],
)  # fmt: skip
def test_a_record_is_looked_for_however_old_it_is(ids: dict[str, Any]) -> None:
    query = audit_query(asked(**ids), NOW)
    assert (query.since, query.until) == (None, None)


@pytest.mark.parametrize("many", [{"topic": "orders"}, {"topic": "orders", "partition": 0}, {"service_id": "shop"}])
def test_where_many_may_be_found_the_last_day_is_meant(many: dict[str, Any]) -> None:
    assert audit_query(asked(**many), NOW).since == NOW - WITHOUT_IDS
    until = NOW - timedelta(days=9)
    assert audit_query(asked(until=until, **many), NOW).since == until - WITHOUT_IDS
    since = NOW - timedelta(days=20)
    assert audit_query(asked(since, **many), NOW).since == since


def test_all_that_is_given_narrows_the_question() -> None:
    request = asked(
        topic="orders", partition=3, offset=0, key="bob", audit_type="PRODUCER", audit_status="FAILURE", event_id=EVENT
    )
    query = audit_query(request, NOW)
    assert dict(query.texts) == {
        "topic": "orders", "key": "bob", "audit_type": "PRODUCER", "audit_status": "FAILURE"
    }  # fmt: skip
    assert (query.event_id, query.partition, query.offset) == (UUID(EVENT), 3, 0)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (asked(), "correlation_id"),
        (asked(key="bob", audit_status="FAILURE"), "correlation_id"),
        (asked(event_id="seven"), "event_id"),
        (asked(correlation_id="c", partition=1), "partition"),
        (asked(topic="orders", offset=1), "offset"),
        (asked(topic="orders", partition=-1), "partition"),
        (asked(topic="orders", partition=0, offset=-2), "offset"),
        (asked(NOW, NOW, correlation_id="c"), "end_time"),
    ],
)
def test_what_cannot_be_meant_is_refused(request_: audit.QueryAuditRequest, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        audit_query(request_, NOW)
    assert refused.value.field == field


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_the_table_is_as_far_as_its_slowest_partition() -> None:
    found = freshness(
        [PartitionProgress(90, 100, ago(40)), PartitionProgress(50, 50, ago(5)), PartitionProgress(7, 12, ago(30))],
        [SourceProgress("c1", "", ago(5)), SourceProgress("c2", "", ago(9))],
        NOW,
    )
    assert (found.behind_events, durations.in_s(found.behind), found.problem) == (15, 35.0, "")
    assert found.complete_until.ToDatetime(UTC) == ago(40)
    assert found.pipeline_time.ToDatetime(UTC) == ago(5)


def test_of_a_partition_of_which_nothing_is_known_nothing_is_promised() -> None:
    found = freshness(
        [PartitionProgress(0, 100, None), PartitionProgress(50, 50, ago(5))], [SourceProgress("c1", "", ago(5))], NOW
    )
    assert not found.HasField("complete_until")
    assert found.behind_events == 100


def test_it_is_said_that_no_pipeline_has_ever_run() -> None:
    found = freshness([], [], NOW)
    assert found.problem == f"no pipeline has ever brought audit events here: {HOW_TO_START}"
    assert not found.HasField("pipeline_time")


def test_it_is_said_that_no_pipeline_runs_any_more_and_what_was_the_matter_with_a_cluster() -> None:
    sources = [SourceProgress("c1", "", ago(200)), SourceProgress("c2", "no answer", ago(300))]
    assert freshness([], sources, NOW).problem == (
        f"no pipeline has been heard of for 200 s: {HOW_TO_START}; c2: no answer"
    )


def test_a_cluster_that_cannot_be_read_is_named_while_the_pipeline_runs() -> None:
    sources = [SourceProgress("c1", "", ago(3)), SourceProgress("c2", "no answer", ago(2))]
    assert freshness([], sources, NOW).problem == "c2: no answer"
