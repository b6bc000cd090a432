"""`meshctl audit tail`: what is asked for, what is shown, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from click.testing import Result

from mesh.rpc import admin, audit
from meshctl import reopening
from tests.unit.meshctl.scripted_control import Answer, Refusal, ScriptedControl

Meshctl = Callable[..., Result]
FOLLOWED = audit.TailAuditResponse(source=audit.AuditSource(cluster_name="c1", topics=["sidecar-audit"]))


def event(number: int, **fields: Any) -> audit.TailAuditResponse:
    record = audit.RecordAudit(
        id=f"id-{number}", service_id="shop-1", audit_type="PRODUCER", topic="orders", partition=0, offset=number,
        audit_status="SUCCESS", **fields,
    )  # fmt: skip
    record.time.FromSeconds(1_700_000_000 + number)
    return audit.TailAuditResponse(record=record)


def test_a_line_says_what_became_of_which_record(control: ScriptedControl, meshctl: Meshctl) -> None:
    failed = event(7, key="alice", correlation_id="c-1", stacktrace="boom\n  at line 1")
    failed.record.audit_status = "FAILURE"
    control.answers["Tail"] = [FOLLOWED, failed]
    shown = meshctl("audit", "tail", "--no-follow")
    assert shown.exit_code == 0
    assert (
        shown.stdout.split("  ", 1)[1] == "FAILURE  PRODUCER  orders-0@7  key=alice  correlation=c-1  by=shop-1  boom\n"
    )


def test_what_is_asked_for_goes_to_control(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Tail"] = []
    before = datetime.now(UTC)
    for since in ("2h", (before - timedelta(hours=2)).isoformat()):
        meshctl(
            "audit", "tail", "--topic", "orders", "--correlation-id", "c", "--key", "k", "--status", "failure",
            "--type", "reactive_consumer", "--since", since, "--no-follow",
        )  # fmt: skip
        asked = control.requests("Tail")[-1]
        assert abs(asked.start_time.ToDatetime(tzinfo=UTC) - (before - timedelta(hours=2))) < timedelta(minutes=30)
        asked.ClearField("start_time")
        assert asked == audit.TailAuditRequest(
            topic="orders", correlation_id="c", key="k", audit_status="FAILURE", audit_type="REACTIVE_CONSUMER",
            stop_at_end=True,
        )  # fmt: skip
    wrong = meshctl("audit", "tail", "--since", "yesterday")
    assert wrong.exit_code == 2
    assert "10m, 2h, 1d (ago)" in wrong.output


def test_a_cluster_that_is_away_is_named_and_the_others_go_on(control: ScriptedControl, meshctl: Meshctl) -> None:
    away = audit.AuditSource(cluster_name="c2", problem="cluster 'c2' does not answer: no route")
    without = audit.AuditSource(cluster_name="c3")
    control.answers["Tail"] = [
        audit.TailAuditResponse(source=away), audit.TailAuditResponse(source=without), FOLLOWED, event(1),
    ]  # fmt: skip
    shown = meshctl("audit", "tail", "--no-follow", "-o", "json")
    assert json.loads(shown.stdout)["offset"] == "1"
    assert shown.stderr.splitlines() == [
        "cluster 'c2' does not answer: no route; it is tried again",
        "cluster 'c3' has no audit topic",
    ]


def test_it_goes_on_where_the_stream_ended_and_shows_nothing_twice(
    control: ScriptedControl, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reopening, "RECONNECT_SECONDS", 0)

    def two_at_a_time(request: audit.TailAuditRequest) -> Sequence[audit.TailAuditResponse]:
        first = request.start_time.seconds - 1_700_000_000 if request.HasField("start_time") else 1
        return [FOLLOWED, event(first), event(first + 1)]

    control.answers["Tail"] = two_at_a_time
    shown = meshctl("audit", "tail", "-n", "4", "-o", "json")
    assert shown.exit_code == 0, shown.output
    assert [json.loads(line)["id"] for line in shown.stdout.splitlines()] == ["id-1", "id-2", "id-3", "id-4"]


def test_an_older_event_of_another_cluster_is_shown_after_the_stream_was_opened_again(
    control: ScriptedControl, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters give their events when they can: the stream broke off before the older one was there."""
    monkeypatch.setattr(reopening, "RECONNECT_SECONDS", 0)

    def later_first(request: audit.TailAuditRequest) -> Sequence[audit.TailAuditResponse]:
        if not control.requests("Tail")[1:]:
            return [FOLLOWED, event(100)]
        return [FOLLOWED, *(event(n) for n in (90, 100) if 1_700_000_000 + n >= request.start_time.seconds)]

    control.answers["Tail"] = later_first
    shown = meshctl("audit", "tail", "--since", "2023-11-01T00:00:00Z", "-n", "2", "-o", "json")
    assert [json.loads(line)["id"] for line in shown.stdout.splitlines()] == ["id-100", "id-90"]


def test_that_control_went_away_is_said_once(
    control: ScriptedControl, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reopening, "RECONNECT_SECONDS", 0)
    away = Refusal(grpc.StatusCode.UNAVAILABLE, "gone")
    answers: Iterator[Answer] = iter([[FOLLOWED, event(1)], away, away, away, [FOLLOWED, event(2)]])
    control.answers["Tail"] = lambda _request: next(answers)
    shown = meshctl("audit", "tail", "-n", "2", "-o", "json")
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 2)
    assert shown.stderr.splitlines() == ["control went away; waiting for it"]


def test_audit_alone_still_tells_who_called(control: ScriptedControl, meshctl: Meshctl) -> None:
    found = admin.AuditEvent(actor="ada@desk", method="/mesh.v1.RuleService/SetRule", code="OK")
    control.answers["ListAuditEvents"] = admin.ListAuditEventsResponse(audit_events=[found])
    assert "ada@desk" in meshctl("audit", "-n", "1").output
    assert control.requests("Tail") == []
