"""`meshctl lineage`: what is asked for, how edges and gaps are shown, and exports once and with --follow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from mcp import Client

from mesh.rpc import lineage as pb
from meshctl.assistant.server import made
from meshctl.openlineage import endpoint
from meshctl.session import Session
from meshctl.siem import exporting
from tests.fixtures.assistants import Assistant
from tests.fixtures.openlineage import problems
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
ORDERS = pb.LineageNode(
    kind=pb.LINEAGE_NODE_KIND_TOPIC, name="orders", cluster="c1", upstream_topic="orders",
    bootstrap_servers=["kafka-1:9092"],
)  # fmt: skip
SHOP = pb.LineageNode(
    kind=pb.LINEAGE_NODE_KIND_APPLICATION, name="User:alice/shop", principal="User:alice", client="shop"
)
NOBODY = pb.LineageNode(
    kind=pb.LINEAGE_NODE_KIND_APPLICATION, name="User:ANONYMOUS/", principal="User:ANONYMOUS", shared=True
)
COPIES = pb.LineageNode(kind=pb.LINEAGE_NODE_KIND_TOPIC, name="c2/orders", cluster="c2", upstream_topic="orders")


def edges() -> list[pb.LineageEdge]:
    made = [
        pb.LineageEdge(source=SHOP, target=ORDERS, kind=pb.LINEAGE_EDGE_KIND_PRODUCES, present=True),
        pb.LineageEdge(source=NOBODY, target=ORDERS, kind=pb.LINEAGE_EDGE_KIND_PRODUCES),
        pb.LineageEdge(source=ORDERS, target=COPIES, kind=pb.LINEAGE_EDGE_KIND_COPIES, rule="recordrules/m"),
    ]
    made[0].records_per_second, made[0].bytes_per_second = 1.25, 2_048
    for each in made:
        each.first_time.FromDatetime(datetime(2026, 11, 28, 12, tzinfo=UTC))
        each.last_time.FromDatetime(datetime(2026, 11, 29, 12, tzinfo=UTC))
    return made


def gathering(**fields: object) -> pb.LineageGathering:
    made = pb.LineageGathering(edges=3, **fields)  # type: ignore[arg-type]
    made.time.FromDatetime(datetime.now(UTC) - timedelta(seconds=3))
    return made


def words(line: str) -> list[str]:
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_edges_are_a_table_and_gaps_are_sentences(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["QueryLineage"] = pb.QueryLineageResponse(
        start=ORDERS, edges=edges(), truncated=True, hidden=2, gathering=gathering(left_out=7, problem="g1 lists few")
    )
    shown = meshctl("lineage", "topic", "orders", "--downstream", "--depth", "8", "--most", "3")
    assert shown.exit_code == 0, shown.output
    _, first, second, third = map(words, shown.stdout.splitlines())
    assert first[:4] == ["application User:alice/shop", "produces", "topic orders (c1)", "-"]
    assert first[4] == "1.2 records, 2.05 kB"
    assert first[-1] == "now"
    assert second[0] == "application of User:ANONYMOUS (unnamed clients)"
    assert second[-1].startswith("2026-11-29")
    assert third[1:4] == ["is copied to", "topic c2/orders", "recordrules/m"]
    assert shown.stderr.splitlines() == [
        "There are more than 3 edges: raise --most, or lower --depth.",
        "2 topics beyond your grants, and all behind, are not shown.",
        "Edges may be missing: g1 lists few.",
        "7 edges had no room: LINEAGE_EDGES of control is the bound.",
    ]
    (asked,) = control.requests("QueryLineage")
    assert asked == pb.QueryLineageRequest(
        topic="orders", direction=pb.LINEAGE_DIRECTION_DOWNSTREAM, depth=8, most_edges=3
    )


def test_groups_and_applications_are_asked_for_and_shown_as_json(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["QueryLineage"] = pb.QueryLineageResponse(start=ORDERS, edges=edges(), gathering=gathering())
    shown = meshctl("lineage", "group", "billing", "--upstream", "-o", "json")
    assert len(json.loads(shown.stdout)["edges"]) == 3
    shown = meshctl("lineage", "application", "User:alice/shop", "--openlineage")
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [each for event in events for each in problems(event)] == []
    assert {each["job"]["name"] for each in events} == {"User:alice/shop", "User:ANONYMOUS/", "recordrules/m"}
    group, application = control.requests("QueryLineage")
    assert (group.group, group.direction) == ("billing", pb.LINEAGE_DIRECTION_UPSTREAM)
    assert (application.application, application.direction) == ("User:alice/shop", pb.LINEAGE_DIRECTION_BOTH)


def test_an_export_takes_all_pages_into_a_file(control: ScriptedControl, meshctl: Meshctl, tmp_path: Path) -> None:
    control.answers["ListLineage"] = lambda request: pb.ListLineageResponse(
        edges=edges()[1:] if request.page_token else edges()[:1],
        next_page_token="" if request.page_token else "more",
        gathering=gathering(),
    )
    file = tmp_path / "lineage.jsonl"
    shown = meshctl("lineage", "export", "--to", str(file), "--namespace", "shop", "--since", "2d")
    assert shown.exit_code == 0, shown.output
    assert shown.stderr == f"6 events exported to {file}\n"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert {each["job"]["namespace"] for each in events} == {"shop"}
    assert control.requests("ListLineage")[0].HasField("since_time")


def test_an_export_says_what_is_wrong_with_its_target(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["ListLineage"] = pb.ListLineageResponse(edges=edges())
    wrong = meshctl("lineage", "export", "--to", "ftp://x")
    assert wrong.exit_code == 2
    assert "https://HOST:PORT" in wrong.stderr
    away = meshctl("lineage", "export", "--to", "http://127.0.0.1:1")
    assert away.exit_code == 1
    assert "refused" in away.stderr


def test_a_follower_waits_for_an_endpoint_that_is_away(
    control: ScriptedControl, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.answers["ListLineage"] = pb.ListLineageResponse(edges=edges())
    tried: list[str] = []

    def send(_: endpoint.EndpointTarget, event: dict[str, dict[str, str]]) -> None:
        tried.append(event["job"]["name"])
        if len(tried) == 1:
            raise ConnectionError("busy")

    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if seconds == 600:  # between two looks
            raise KeyboardInterrupt

    monkeypatch.setattr(endpoint.EndpointTarget, "send", send)
    monkeypatch.setattr(time, "sleep", sleep)
    shown = meshctl("lineage", "export", "--follow", "--every", "600", "--to", "https://marquez.example.com")
    assert shown.exit_code == 0
    assert waits == [exporting.FIRST_PAUSE_S, 600]
    assert len(tried) == 7, "all six events, the first one twice"
    assert "is tried again: busy" in shown.stderr


async def test_an_assistant_asks_for_lineage(control: ScriptedControl) -> None:
    control.answers["QueryLineage"] = pb.QueryLineageResponse(start=ORDERS, edges=edges(), gathering=gathering())
    async with Client(made(Session(address=control.address), allow_changes=False)) as client:
        answer = await Assistant(client).asks("show_lineage", kind="group", name="billing", direction="upstream")
    assert len(answer["edges"]) == 3
    (asked,) = control.requests("QueryLineage")
    assert asked == pb.QueryLineageRequest(
        group="billing", direction=pb.LINEAGE_DIRECTION_UPSTREAM, depth=4, most_edges=100
    )
