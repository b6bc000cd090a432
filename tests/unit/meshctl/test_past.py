"""`meshctl history`, `diff` and `revert`: what is asked, and how answers read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from click.testing import Result

from mesh.rpc import admin, routing
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]


def rule(rule_id: str, target: str, place: int = 1) -> admin.Rule:
    spec = routing.RuleSpec(rule_id=rule_id, match=routing.RuleMatch(topic=rule_id), target_cluster=target)
    return admin.Rule(name=f"rules/{rule_id}", spec=spec, place=place)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (("orders",), "topic", "orders"),
        (("--rule", "orders"), "name", "rules/orders"),
        (("--cluster", "c1"), "name", "clusters/c1"),
        (("--record-rule", "m"), "name", "recordrules/m"),
    ],
)
def test_history_asks_about_one_thing(
    control: ScriptedControl, meshctl: Meshctl, options: tuple[str, ...], field: str, value: str
) -> None:
    assert "Nothing was decided yet about" in meshctl("history", *options).output
    (request,) = control.requests("ListHistory")
    assert getattr(request, field) == value


def test_history_is_about_one_thing_only(meshctl: Meshctl) -> None:
    assert meshctl("history", "orders", "--cluster", "c1").exit_code == 2


def test_history_of_a_topic_has_a_column_for_where_it_lived(control: ScriptedControl, meshctl: Meshctl) -> None:
    entry = admin.HistoryEntry(revision=9, changes=["rule a removed", "rule b added"], place="c1/shop.orders")
    control.answers["ListHistory"] = admin.ListHistoryResponse(entries=[entry, admin.HistoryEntry(revision=2)])
    output = meshctl("history", "orders").output
    for part in ("LIVES ON", "c1/shop.orders", "nowhere", "rule a removed", "rule b added"):
        assert part in output
    assert json.loads(meshctl("history", "-o", "json").output)["entries"][0]["place"] == "c1/shop.orders"


def test_history_goes_over_pages(control: ScriptedControl, meshctl: Meshctl) -> None:
    def page(request: admin.ListHistoryRequest) -> admin.ListHistoryResponse:
        token = "" if request.page_token == "2" else str(int(request.page_token or 0) + 1)
        return admin.ListHistoryResponse(entries=[admin.HistoryEntry(revision=9)], next_page_token=token)

    control.answers["ListHistory"] = page
    entries = json.loads(meshctl("history", "-n", "50", "-o", "json").output)["entries"]
    assert len(entries) == 3


def test_differences_are_shown_with_signs_moves_and_a_count(control: ScriptedControl, meshctl: Meshctl) -> None:
    spec = routing.ClusterSpec(cluster_name="c3", bootstrap_servers=["c3:1"])
    control.answers["Diff"] = admin.DiffResponse(
        from_revision=4,
        to_revision=9,
        rules=[
            admin.RuleDifference(before=rule("a", "c1"), after=rule("a", "c2")),
            admin.RuleDifference(before=rule("b", "c1", 3), after=rule("b", "c1", 1)),
            admin.RuleDifference(after=rule("c", "c3", 2)),
            admin.RuleDifference(before=rule("d", "c1")),
        ],
        clusters=[admin.ClusterDifference(after=admin.Cluster(spec=spec))],
        moves=[admin.TopicMove(topic="a", from_cluster="c1", from_topic="a", to_cluster="c2", partitions=3)],
        unreachable=["c3"],
    )
    assert meshctl("diff", "4").output.splitlines() == [
        "+ cluster c3  c3:1",
        "~ rule a      topic a -> c2 (was topic a -> c1)",
        "~ rule b      topic b -> c1 (place 3 -> 1)",
        "+ rule c      topic c -> c3 (place 2)",
        "- rule d      topic d -> c1",
        "topic a: c1 -> c2 (3 partitions)",
        "note: cluster c3 does not say which topics it has; some that live elsewhere may be missing",
        "Revision 4 to 9: 2 added, 2 changed, 1 removed; 1 topic elsewhere.",
    ]
    (request,) = control.requests("Diff")
    assert (request.from_revision, request.to_revision) == (4, 0)


def test_nothing_differs(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Diff"] = admin.DiffResponse(from_revision=4, to_revision=5)
    assert meshctl("diff", "4", "5").output == "Revision 4 to 5: nothing differs.\n"


@pytest.mark.parametrize("arguments", [(), ("4", "-f", "-"), ("0",)])
def test_it_has_to_be_said_what_to_compare(
    control: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...]
) -> None:
    assert meshctl("diff", *arguments, stdin="rules: []\n").exit_code == 2
    assert not control.calls


def test_a_revert_is_a_change_like_any_other(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Revert"] = admin.RuleChangeResponse(revision=9, rules=[rule("a", "c1")])
    assert "a: topic a -> c1 (place 1)\nrevision 9" in meshctl("revert", "4", "--reason", "too early").output
    meshctl("revert", "--last", "--dry-run", "--create-topics", "--expected-revision", "8")
    by_revision, last = control.requests("Revert")
    assert (by_revision.revision, by_revision.options.reason) == (4, "too early")
    assert str(uuid.UUID(by_revision.options.request_id)) == by_revision.options.request_id
    assert last.last
    assert (last.options.validate_only, last.options.expected_revision) == (True, 8)
    assert last.options.create_missing_topics


def test_what_is_in_force_already_is_said(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Revert"] = admin.RuleChangeResponse(revision=9)
    assert meshctl("revert", "4").output == "nothing to change; revision 9 stays\n"


@pytest.mark.parametrize("arguments", [(), ("4", "--last")])
def test_it_has_to_be_said_where_to_go_back_to(
    control: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...]
) -> None:
    assert meshctl("revert", *arguments).exit_code == 2
    assert not control.calls


def test_explain_tells_who_said_so_and_what_lies_there_now(control: ScriptedControl, meshctl: Meshctl) -> None:
    decisive = rule("orders", "c1")
    decisive.revision, decisive.actor = 8, "ada@desk"
    decisive.update_time.FromSeconds(1_800_000_000)
    live = [
        admin.LivePartition(partition=0, leader=3, start=5, end=9),
        admin.LivePartition(partition=1, leader=-1, start=-1, end=-1),
    ]
    control.answers["Explain"] = admin.ExplainResponse(
        topic="orders", cluster="c1", upstream_topic="orders", partitions=2, revision=9,
        tried=[admin.TriedRule(rule=decisive, matched=True, reason="the topic is 'orders'")], live_partitions=live,
    )  # fmt: skip
    lines = [line.split() for line in meshctl("explain", "orders").output.splitlines()]
    assert ["0", "3", "5", "9"] in lines
    assert ["1", "-", "-", "-"] in lines
    assert "orders says so since revision 8, 2027-01-15" in meshctl("explain", "orders").output
