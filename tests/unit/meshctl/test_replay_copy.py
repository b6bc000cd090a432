"""`meshctl replay copy` and `resume`: what is typed, what control is asked, what is shown, also of many partitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from click.testing import Result
from google.protobuf.json_format import MessageToDict
from rich.console import Console

from mesh.rpc import replays as pb
from meshctl.commands import replay_starting
from meshctl.commands.replay_bar import with_bar
from meshctl.replay_progress import Pace, Progress, progress, span
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
PENDING, RUNNING, DONE = pb.REPLAY_STATE_PENDING, pb.REPLAY_STATE_RUNNING, pb.REPLAY_STATE_DONE
CANCELLED = pb.REPLAY_STATE_CANCELLED
LINE = ("replay", "copy", "--from", "orders", "--to", "again")


def copy(state: pb.ReplayState.ValueType = RUNNING, *partitions: pb.ReplayPartition, **fields: Any) -> pb.Replay:
    """Of orders, to again."""
    spec = pb.ReplaySpec(ranges=[pb.ReplayRange(topic="orders")], topic=pb.ReplayToTopic(topic="again", group="g"))
    return pb.Replay(**{"name": "replays/3f9a", "spec": spec, "state": state, **fields}, partitions=partitions)


def part(position: int, partition: int = 0, **fields: Any) -> pb.ReplayPartition:
    return pb.ReplayPartition(
        topic="orders", partition=partition, end_offset=100, position=position, records=position, **fields
    )


def totals(done: int, through: int = 0) -> pb.ReplayTotals:
    """Of 5,000 partitions with 100 offsets each."""
    return pb.ReplayTotals(partitions=5000, partitions_done=through, offsets=500_000, offsets_done=done, records=done)


def spec_of(control: ScriptedControl) -> dict[str, Any]:
    [request] = control.requests("StartReplay")
    return MessageToDict(request.spec, preserving_proto_field_name=True)


def test_a_topic_is_copied_to_another_one(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = copy(RUNNING, part(0))
    result = meshctl(*LINE)
    assert result.exit_code == 0, result.output
    assert spec_of(control) == {
        "ranges": [{"topic": "orders"}],
        "topic": {
            "topic": "again",
            "timestamps": "REPLAY_TIMESTAMPS_KEEP",
            "partitioning": "REPLAY_PARTITIONING_SAME",
            "archive": "REPLAY_ARCHIVE_AUTO",
        },
    }
    assert "orders copied to again" in result.output
    assert "at most 100" in result.output


def test_everything_about_a_copy_can_be_said(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = copy()
    result = meshctl(
        "replay", "copy", "--from", "orders", "--to", "old.{topic}", "--from-cluster", "c1", "--to-cluster", "c2",
        "--partition", "3", "--since", "10", "--until", "2026-11-21T20:00:00Z", "--filter", "key == 'a'",
        "--transform", "set-header:by=ada", "--transform", "redact:card", "--rate", "500", "--timestamps", "now",
        "--by-key", "--force", "--archive", "only", "--pipeline", "p1", "--progress-group", "g", "--reason", "moved",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert spec_of(control) == {
        "ranges": [{"topic": "orders", "partition": 3, "start_offset": "10", "end_time": "2026-11-21T20:00:00Z"}],
        "rate": 500.0,
        "topic": {
            "topic": "old.{topic}",
            "cluster": "c2",
            "source_cluster": "c1",
            "pipeline": "p1",
            "group": "g",
            "timestamps": "REPLAY_TIMESTAMPS_NOW",
            "partitioning": "REPLAY_PARTITIONING_BY_KEY",
            "force": True,
            "filter": "key == 'a'",
            "transforms": [{"set_header": {"name": "by", "value": "ada"}}, {"redact_json_field": "card"}],
            "archive": "REPLAY_ARCHIVE_ONLY",
        },
    }
    assert control.requests("StartReplay")[0].reason == "moved"


def test_several_ranges_and_topics(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = copy()
    ranges = ("--range", "orders/0:10..25", "--range", "orders/1")
    assert meshctl("replay", "copy", *ranges, "--to", "again").exit_code == 0
    assert spec_of(control)["ranges"] == [
        {"topic": "orders", "partition": 0, "start_offset": "10", "end_offset": "25"},
        {"topic": "orders", "partition": 1},
    ]
    topics = ("--from", "orders", "--from", "returns", "--since", "2026-11-21T20:00:00Z")
    assert meshctl("replay", "copy", *topics, "--to-cluster", "c2").exit_code == 0
    both = control.requests("StartReplay")[1].spec
    assert [each.topic for each in both.ranges] == ["orders", "returns"]
    assert (both.topic.topic, both.topic.cluster) == ("", "c2")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["--to", "again"], "say which records: --from TOPIC, or --range"),
        (["--from", "t", "--range", "t/0", "--to", "again"], "one of the two"),
        (["--range", "t/0", "--since", "-2h", "--to", "again"], "a --range says its partition and places itself"),
        (["--from", "t"], "say where to: --to TOPIC, --to-cluster CLUSTER, or both"),
        (["--from", "t", "--to", "again", "--since", "5"], "an offset is one of a partition"),
        (["--from", "t", "--to", "again", "--transform", "upper"], "expected set-header:NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_not_asked_of_control(
    control: ScriptedControl, meshctl: Meshctl, said: list[str], why: str
) -> None:
    result = meshctl("replay", "copy", *said)
    assert (result.exit_code, control.calls) == (2, [])
    assert why in " ".join(result.output.split())


def test_wait_shows_the_plan_as_soon_as_the_pipeline_has_it_and_follows_to_the_end(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    control.answers["StartReplay"] = copy(PENDING, description="waits for a pipeline")
    course = [copy(PENDING), copy(RUNNING, part(0)), copy(RUNNING, part(50)), copy(DONE, part(100), description="all")]
    control.answers["WatchReplay"] = course
    result = meshctl(*LINE, "--wait")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("at most 100") == 1
    assert "running: 0%" in result.stderr
    assert "replay 3f9a done: 100% (100 records), all" in result.stdout
    as_json = meshctl(*LINE, "--wait", "-o", "json")
    assert json.loads(as_json.stdout)["state"] == "REPLAY_STATE_DONE"


def test_whoever_stops_watching_is_told_how_to_come_back(
    control: ScriptedControl, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.answers["StartReplay"] = copy()
    monkeypatch.setattr(replay_starting, "follow", lambda *_args, **_more: None)
    result = meshctl(*LINE, "--wait")
    assert result.exit_code == 0
    assert "`meshctl replay watch 3f9a` follows it, `meshctl replay cancel 3f9a` ends it" in result.output


def test_a_dry_run_that_is_waited_for_shows_its_counts(control: ScriptedControl, meshctl: Meshctl) -> None:
    started = copy(PENDING)
    started.spec.dry_run = True
    counted = copy(DONE, part(0, planned=37))
    counted.spec.dry_run = True
    control.answers["StartReplay"] = started
    control.answers["WatchReplay"] = [counted]
    result = meshctl(*LINE, "--dry-run", "--wait")
    assert result.exit_code == 0, result.output
    assert ["orders", "0", "0", "100", "37"] in [line.split() for line in result.stdout.splitlines()]


def test_one_of_many_partitions_is_told_in_brief(control: ScriptedControl, meshctl: Meshctl) -> None:
    parts = [part(100 if number < 200 else 0, number) for number in range(500)]
    wide = copy(RUNNING, *parts, totals=totals(200_000))
    control.answers["GetReplay"] = wide
    shown = meshctl("replay", "show", "3f9a")
    assert ["orders", "500", "200", "20000", "0"] in [line.split() for line in shown.output.splitlines()]
    assert len(meshctl("replay", "show", "3f9a", "--partitions").output.splitlines()) > 500
    control.answers["ListReplays"] = pb.ListReplaysResponse(replays=[copy(RUNNING, totals=totals(200_000))])
    assert "40% (200000 records)" in meshctl("replay", "list").output
    control.answers["StartReplay"] = wide
    assert ["orders", "500", "at", "most", "50000"] in [line.split() for line in meshctl(*LINE).output.splitlines()]


def test_a_watch_of_partitions_has_those_that_are_under_way(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["WatchReplay"] = [
        copy(RUNNING, part(40, 7), part(100, 8), totals=totals(140)),
        copy(DONE, totals=totals(500_000, 5000)),
    ]
    result = meshctl("replay", "watch", "3f9a", "--partitions")
    assert control.requests("WatchReplay")[0].partitions
    assert "orders/7 40% (40 records)" in result.stderr
    assert "orders/8" not in result.stderr
    assert "1 of 5000 partitions" not in result.stderr
    assert "0 of 5000 partitions" in result.stderr


def test_the_bar_has_the_partitions_under_way_and_what_is_left() -> None:
    screen, times = StringIO(), iter([0.0, 10.0])
    course = [
        copy(RUNNING, part(10, 7), totals=totals(0)),
        copy(RUNNING, part(60, 7), totals=totals(100_000, 12)),
    ]
    console = Console(file=screen, force_terminal=True, width=160)
    assert with_bar(iter(course), console, partitions=True, clock=lambda: next(times)) == course[-1]
    assert "orders/7" in screen.getvalue()
    assert "12 of 5000 partitions" in screen.getvalue()
    assert "10000 records/s, 40 s left" in screen.getvalue()


def test_how_fast_it_goes_is_what_came_in_the_last_seconds() -> None:
    pace = Pace()
    pace.saw(Progress(0, 1000), 0.0)
    assert pace.text() == ""
    for second in range(1, 101):  # slow at first, then ten a second
        pace.saw(Progress(second if second < 50 else 50 + (second - 50) * 10, 1000, records=second), float(second))
    assert pace.text() == "1 records/s, 45 s left"
    pace.saw(Progress(0, 1000), 101.0)  # another member begins anew: nobody knows yet
    assert pace.seconds_left is None
    assert [span(seconds) for seconds in (4.4, 200, 7500)] == ["4 s", "3 min 20 s", "2 h 5 min"]


def test_how_far_one_of_an_earlier_control_is_follows_from_its_partitions() -> None:
    assert progress(copy(RUNNING, part(40), part(100, 1))) == Progress(140, 200, 140, 0, 2, 1)


def test_one_that_was_cancelled_goes_on_as_a_new_one(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetReplay"] = copy(CANCELLED, part(40))
    control.answers["StartReplay"] = copy(RUNNING, part(40), name="replays/4b")
    result = meshctl("replay", "resume", "3f9a")
    assert result.exit_code == 0, result.output
    [request] = control.requests("StartReplay")
    assert request.spec == copy().spec
    assert request.reason == "goes on with replays/3f9a"
    for state, why in ((RUNNING, "is running, and goes on by itself"), (DONE, "is done; start a new one")):
        control.answers["GetReplay"] = copy(state)
        refused = meshctl("replay", "resume", "3f9a")
        assert (refused.exit_code, len(control.requests("StartReplay"))) == (1, 1)
        assert why in refused.output
