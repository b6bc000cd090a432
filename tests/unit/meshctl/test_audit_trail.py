"""`meshctl audit trail`: what is asked for, what is shown, and what is said about how far the table is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from click.testing import Result

from mesh.rpc import audit
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

Meshctl = Callable[..., Result]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def event(number: int, **fields: Any) -> audit.RecordAudit:
    made = audit.RecordAudit(
        id=f"id-{number}", service_id="shop-1", audit_type="PRODUCER", topic="orders", partition=0, offset=number,
        audit_status="SUCCESS", cluster_name="c1", **fields,
    )  # fmt: skip
    made.time.FromDatetime(NOON + timedelta(seconds=number))
    return made


def answer(*events: audit.RecordAudit, token: str = "", **freshness: Any) -> audit.QueryAuditResponse:
    how_far = audit.AuditFreshness(**freshness)
    how_far.pipeline_time.FromDatetime(NOON)
    how_far.complete_until.FromDatetime(NOON)
    return audit.QueryAuditResponse(events=events, next_page_token=token, freshness=how_far)


def test_a_life_is_a_table_with_the_oldest_first(control: ScriptedControl, meshctl: Meshctl) -> None:
    failed = event(8, key="alice", correlation_id="c-1", stacktrace="boom\n  at line 1")
    failed.audit_status, failed.audit_type, failed.service_id = "FAILURE", "REACTIVE_CONSUMER", "bill-1"
    control.answers["Query"] = answer(event(7, correlation_id="c-1"), failed)
    shown = meshctl("audit", "trail", "--correlation-id", "c-1")
    assert (shown.exit_code, shown.stderr) == (0, "")
    _, first, second = (line.split("  ") for line in shown.stdout.splitlines())
    assert [word.strip() for word in first if word.strip()][1:] == [
        "SUCCESS", "PRODUCER", "orders-0@7", "-", "c-1", "-", "shop-1 on c1"
    ]  # fmt: skip
    assert [word.strip() for word in second if word.strip()][1:] == [
        "FAILURE", "REACTIVE_CONSUMER", "orders-0@8", "alice", "c-1", "-", "bill-1 on c1", "boom"
    ]  # fmt: skip


def test_what_is_asked_for_goes_to_control(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Query"] = answer()
    shown = meshctl(
        "audit", "trail", "--topic", "orders", "--partition", "0", "--offset", "7", "--key", "k", "--status", "failure",
        "--type", "control", "--service", "s", "--trace-id", "w", "--traceability-id", "t", "--event", "e",
        "--since", "2026-11-20T00:00:00Z", "--until", "2026-11-21T00:00:00Z", "-n", "5",
    )  # fmt: skip
    assert shown.stdout == "Nothing of that kind is in the table.\n"
    expected = audit.QueryAuditRequest(
        topic="orders", partition=0, offset=7, key="k", audit_status="FAILURE", audit_type="CONTROL", service_id="s",
        trace_id="w", traceability_id="t", event_id="e", page_size=6,
    )  # fmt: skip
    expected.start_time.FromJsonString("2026-11-20T00:00:00Z")
    expected.end_time.FromJsonString("2026-11-21T00:00:00Z")
    assert control.requests("Query") == [expected]
    meshctl("audit", "trail", "--topic", "orders")
    assert not control.requests("Query")[-1].HasField("partition")


def test_pages_are_taken_until_there_are_enough(control: ScriptedControl, meshctl: Meshctl) -> None:
    pages = iter([answer(event(1), event(2), token="two"), answer(event(3), event(4), token="three")])
    control.answers["Query"] = lambda _request: next(pages)
    shown = meshctl("audit", "trail", "--topic", "orders", "-n", "3", "-o", "json")
    assert [each["id"] for each in json.loads(shown.stdout)["events"]] == ["id-1", "id-2", "id-3"]
    assert [each.page_token for each in control.requests("Query")] == ["", "two"]


def test_that_there_is_more_is_said(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Query"] = answer(event(1), event(2))
    shown = meshctl("audit", "trail", "--topic", "orders", "-n", "1")
    assert shown.stderr == "There are more than 1 event: say -n, or from when on with --since.\n"


def test_a_table_that_is_behind_is_told_of(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Query"] = answer(event(1), behind=timedelta(minutes=5), behind_events=12)
    until, events = meshctl("audit", "trail", "--topic", "orders").stderr.splitlines()
    assert until.startswith("The table is complete up to 2026-11-22 ")
    assert events == "12 events were still to be read then."


def test_that_no_pipeline_runs_is_told_and_is_in_the_json(control: ScriptedControl, meshctl: Meshctl) -> None:
    never = audit.QueryAuditResponse(freshness=audit.AuditFreshness(problem="no pipeline has ever been heard of"))
    control.answers["Query"] = never
    assert meshctl("audit", "trail", "--topic", "orders").stderr == "No pipeline has ever been heard of.\n"
    shown = json.loads(meshctl("audit", "trail", "--topic", "orders", "-o", "json").stdout)
    assert shown["freshness"]["problem"] == "no pipeline has ever been heard of"


def test_a_refusal_says_what_is_wrong(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Query"] = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "correlation_id: one of these is needed")
    shown = meshctl("audit", "trail", "--key", "k")
    assert shown.exit_code != 0
    assert "one of these is needed" in shown.stderr
