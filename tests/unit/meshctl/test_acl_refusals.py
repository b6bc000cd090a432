"""`meshctl acl refusals`: what is asked for, and what an administrator of clients reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from click.testing import Result

from mesh.rpc import audit
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
REASON = "User:bob from host 10.0.0.1 may not Write Topic 'pay', because no ACL allows it"


def refusal(**fields: Any) -> audit.Refusal:
    known = {"principal": "User:bob", "audit_type": "AUTHORIZATION", "topic": "pay", "enforced": True, "gateway": "g1"}
    made = audit.Refusal(**{**known, "reason": REASON, **fields})
    made.time.FromDatetime(NOON)
    return made


def answer(*refusals: audit.Refusal, token: str = "", **freshness: Any) -> audit.ListRefusalsResponse:
    how_far = audit.AuditFreshness(**freshness)
    return audit.ListRefusalsResponse(refusals=refusals, next_page_token=token, freshness=how_far)


def test_a_refusal_is_shown_with_its_reason(control: ScriptedControl, meshctl: Meshctl) -> None:
    observed = refusal(enforced=False, audit_type="VALIDATION", topic="")
    control.answers["ListRefusals"] = answer(refusal(), observed, problem="no pipeline has been heard of for 90 s")
    shown = meshctl(
        "acl", "refusals", "--principal", "User:bob", "--topic-prefix", "pa", "--since", "2026-11-20T00:00:00Z"
    )
    assert shown.exit_code == 0
    _, first, second = ([word.strip() for word in line.split("  ") if word] for line in shown.stdout.splitlines())
    assert first[1:] == ["refused", "authorization", "User:bob", "pay", "g1", REASON]
    assert second[1:5] == ["observed", "validation", "User:bob", "-"]
    assert shown.stderr == "No pipeline has been heard of for 90 s.\n"
    expected = audit.ListRefusalsRequest(principal="User:bob", topic_prefix="pa", page_size=101)
    expected.start_time.FromJsonString("2026-11-20T00:00:00Z")
    assert control.requests("ListRefusals") == [expected]


def test_pages_are_taken_until_there_are_enough_and_more_is_said(control: ScriptedControl, meshctl: Meshctl) -> None:
    pages = iter([answer(refusal(), refusal(), token="two"), answer(refusal(), refusal(), token="three")])
    control.answers["ListRefusals"] = lambda _request: next(pages)
    shown = meshctl("acl", "refusals", "--topic", "pay", "-n", "3", "-o", "json")
    assert len(json.loads(shown.stdout)["refusals"]) == 3
    assert [each.page_token for each in control.requests("ListRefusals")] == ["", "two"]
    control.answers["ListRefusals"] = answer(refusal(), refusal())
    assert "There are more than 1 refusal" in meshctl("acl", "refusals", "--topic", "pay", "-n", "1").stderr
    control.answers["ListRefusals"] = answer()
    assert "Nothing was refused" in meshctl("acl", "refusals", "--topic", "pay").stdout
