"""`meshctl replay`: what is typed, what control is asked, what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import grpc
import pytest
from click.testing import Result
from google.protobuf.json_format import MessageToDict
from rich.console import Console

from mesh.rpc import events
from mesh.rpc import replays as pb
from meshctl import replays, wording
from meshctl.commands.replay_bar import with_bar
from tests.unit.meshctl.scripted_control import Answer, Refusal, ScriptedControl

Meshctl = Callable[..., Result]
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
RUNNING, DONE, FAILED = pb.REPLAY_STATE_RUNNING, pb.REPLAY_STATE_DONE, pb.REPLAY_STATE_FAILED
ORDERS = pb.ReplayPartition(topic="orders", partition=0, start_offset=100, end_offset=500)


def replay(state: pb.ReplayState.ValueType = RUNNING, *partitions: pb.ReplayPartition, **fields: Any) -> pb.Replay:
    """Of orders, to the backend of s1."""
    spec = pb.ReplaySpec(ranges=[pb.ReplayRange(topic="orders")], backend=pb.ReplayToBackend(sidecar="s1"))
    made = pb.Replay(
        **{"name": "replays/3f9a", "spec": spec, "actor": "ada", "member": "members/s1", **fields},
        state=state, partitions=partitions or [ORDERS],
    )  # fmt: skip
    if state not in (RUNNING, pb.REPLAY_STATE_PENDING):
        made.end_time.FromDatetime(NOW)
    return made


def at(position: int, records: int, failed: int = 0) -> pb.ReplayPartition:
    made = pb.ReplayPartition(position=position, records=records, failed=failed)
    made.MergeFrom(ORDERS)
    return made


def moving(**fields: Any) -> Callable[[pb.StartReplayRequest], pb.Replay]:
    """What control makes of a seek or a group: planned, and not kept where that is all."""
    partition = pb.ReplayPartition(
        topic="orders", cluster="c1", partition=0, start_offset=3, end_offset=10, committed_before=8
    )

    def answer(request: pb.StartReplayRequest) -> pb.Replay:
        made = pb.Replay(name="replays/3f9a", spec=request.spec, state=RUNNING, partitions=[partition], **fields)
        if request.spec.dry_run:
            made.name, made.state, made.description = "", DONE, "only counted: nothing was set"
        return made

    return answer


def asked(control: ScriptedControl, method: str = "StartReplay") -> Any:
    [request] = control.requests(method)
    return request


def spec_of(control: ScriptedControl) -> dict[str, Any]:
    return MessageToDict(asked(control).spec, preserving_proto_field_name=True)


def rows(result: Result) -> list[list[str]]:
    return [line.split() for line in result.output.splitlines()]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("1500", 1500),
        ("-2h", datetime(2026, 11, 22, 10, tzinfo=UTC)),
        ("-1d1h30m", datetime(2026, 11, 21, 10, 30, tzinfo=UTC)),
        ("2026-11-21T20:00:00Z", datetime(2026, 11, 21, 20, tzinfo=UTC)),
        ("2026-11-21T20:00:00+02:00", datetime(2026, 11, 21, 18, tzinfo=UTC)),
    ],
)
def test_a_place_is_an_offset_a_time_or_so_long_ago(said: str, meant: replays.Where) -> None:
    assert replays.where(said, NOW) == meant


@pytest.mark.parametrize("said", ["", "-", "-2x", "+2h", "first", "2026-11-21T20:00:00", "1.5"])
def test_anything_else_is_none(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        replays.where(said, NOW)


def test_a_replay_is_started_and_its_plan_is_shown(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay()
    result = meshctl(
        "replay", "start", "--to", "backend", "--sidecar", "s1", "--topic", "orders", "--partition", "0",
        "--from", "100", "--until", "500", "--rate", "20", "--reason", "the tax was wrong",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert spec_of(control) == {
        "ranges": [{"topic": "orders", "partition": 0, "start_offset": "100", "end_offset": "500"}],
        "backend": {"sidecar": "s1"},
        "rate": 20.0,
    }
    assert asked(control).reason == "the tax was wrong"
    assert rows(result)[2] == ["orders", "0", "100", "500", "at", "most", "400"]
    assert "`meshctl replay watch 3f9a` follows it" in result.output


def test_many_ranges_are_said_one_by_one(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay()
    said = ["--range", "orders/0:10..25", "--range", "orders/1:2026-11-21T20:00:00.5Z..", "--range", "returns"]
    assert meshctl("replay", "start", "--to", "backend", *said).exit_code == 0
    assert spec_of(control)["ranges"] == [
        {"topic": "orders", "partition": 0, "start_offset": "10", "end_offset": "25"},
        {"topic": "orders", "partition": 1, "start_time": "2026-11-21T20:00:00.500Z"},
        {"topic": "returns"},
    ]


def test_a_dry_run_shows_what_was_counted(control: ScriptedControl, meshctl: Meshctl) -> None:
    counted = pb.ReplayPartition(planned=37)
    counted.MergeFrom(ORDERS)
    control.answers["StartReplay"] = replay(DONE, counted, description="37 records")
    result = meshctl("replay", "start", "--to", "backend", "--topic", "orders", "--dry-run")
    assert (result.exit_code, asked(control).spec.dry_run, asked(control).wait.seconds) == (0, True, 55)
    assert rows(result)[2] == ["orders", "0", "100", "500", "37"]
    control.answers["StartReplay"] = replay(pb.REPLAY_STATE_PENDING, description="waits for a member")
    waiting = meshctl("replay", "start", "--to", "backend", "--topic", "orders", "--dry-run")
    assert waiting.exit_code == 3
    assert "not counted yet (pending: waits for a member)" in waiting.output


def test_dead_letters_are_chosen_by_what_their_headers_say(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay()
    result = meshctl(
        "replay", "dead-letters", "orders", "--to", "source", "--reason", "retries", "--key", "order-7",
        "--partition", "0", "--offset", "12", "--offset", "15", "--why", "fixed in 1.2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert spec_of(control) == {
        "ranges": [{"topic": "orders", "partition": 0}],
        "source": {},
        "dead_letters": True,
        "filter": {"reasons": ["retries"], "keys": ["order-7"], "offsets": ["12", "15"]},
    }
    assert asked(control).reason == "fixed in 1.2"


def test_wait_follows_it_to_its_end(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay()
    course = [replay(RUNNING, at(300, 190, 10)), replay(DONE, at(500, 380, 20), description="all of it")]
    control.answers["WatchReplay"] = course
    result = meshctl("replay", "start", "--to", "backend", "--topic", "orders", "--wait")
    assert result.exit_code == 0, result.output
    assert "running: 50% (190 records, 10 failed)" in result.output
    assert "replay 3f9a done: 100% (380 records, 20 failed), all of it" in result.output
    as_json = meshctl("replay", "start", "--to", "backend", "--topic", "orders", "--wait", "-o", "json")
    assert json.loads(as_json.output)["state"] == "REPLAY_STATE_DONE"
    control.answers["WatchReplay"] = [replay(FAILED, description="the backend is gone")]
    failed = meshctl("replay", "start", "--to", "backend", "--topic", "orders", "--wait")
    assert (failed.exit_code, "replay 3f9a failed: the backend is gone" in failed.output) == (1, True)


def test_whoever_sits_before_a_terminal_sees_a_bar() -> None:
    screen = StringIO()
    course = [replay(RUNNING, at(300, 190, 10)), replay(DONE, at(500, 380, 20))]
    console = Console(file=screen, force_terminal=True, width=120)
    last = with_bar(iter(course), console)
    assert last == course[-1]
    assert "380 records, 20 failed" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_a_watch_goes_on_when_control_comes_back(control: ScriptedControl, meshctl: Meshctl) -> None:
    answers: Iterator[Answer] = iter(
        [Refusal(grpc.StatusCode.UNAVAILABLE, "gone"), [replay(RUNNING), replay(DONE, at(500, 400))]]
    )
    control.answers["WatchReplay"] = lambda _request: next(answers)
    result = meshctl("replay", "watch", "3f9a", "-o", "json")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["REPLAY_STATE_RUNNING", "REPLAY_STATE_DONE"]
    assert "control went away; waiting for it" in result.stderr


def test_a_group_is_planned_first_then_asked_about(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = moving(stopped=["instances/billing.one"])
    control.answers["WatchReplay"] = [replay(DONE, description="offsets are set")]
    said = ["replay", "group", "billing", "--topic", "orders", "--first", "--stop"]
    refused = meshctl(*said, stdin="n\n")
    assert (refused.exit_code, len(control.requests("StartReplay"))) == (1, 1)
    assert ["orders", "c1", "0", "8", "3", "5", "0", "7"] in rows(refused)
    assert "stops billing.one for as long as it takes" in refused.output
    result = meshctl(*said, stdin="y\n")
    assert result.exit_code == 0, result.output
    first, planned, done = control.requests("StartReplay")
    assert [first.spec.dry_run, planned.spec.dry_run, done.spec.dry_run] == [True, True, False]
    assert done.spec.group == pb.ReplayByGroup(group="billing", stop=True)
    assert len({each.request_id for each in (first, planned, done)}) == 3


def test_programs_are_not_asked(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = moving()
    said = ["replay", "group", "billing", "--topic", "orders", "--partition", "0", "--to-offset", "3", "-o", "json"]
    assert meshctl(*said).exit_code == 2
    assert control.calls == []
    planned = meshctl(*said, "--dry-run")
    assert json.loads(planned.output)["partitions"][0]["start_offset"] == "3"
    started = meshctl(*said, "--yes", "--no-wait")
    assert json.loads(started.output)["name"] == "replays/3f9a"
    assert not control.requests("StartReplay")[1].spec.dry_run


def test_an_instance_goes_on_elsewhere(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = moving()
    result = meshctl("replay", "instance", "billing.one", "--last", "--dry-run")
    assert result.exit_code == 0, result.output
    assert spec_of(control) == {
        "ranges": [{"start_at_end": True}],  # no topic: all that it has
        "seek": {"instance": "instances/billing.one"},
        "dry_run": True,
    }
    assert "billing.one goes on at all topics at the end" in result.output


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["start", "--to", "backend"], "--topic T, or --range"),
        (["start", "--to", "backend", "--topic", "t", "--range", "t"], "one of the two"),
        (["start", "--to", "backend", "--topic", "t", "--from", "5"], "an offset is one of a partition"),
        (["start", "--to", "backend", "--topic", "t", "--from", "soon"], "'soon' is no place in a topic"),
        (["start", "--to", "backend", "--range", "t/x"], "expected TOPIC[/PARTITION]"),
        (["start", "--to", "backend", "--range", "t/0", "--from", "-2h"], "a --range says its partition and places"),
        (["dead-letters", "t", "--to", "source", "--last-retry"], "--to source has none"),
        (["group", "g", "--topic", "t"], "say where to go on"),
        (["group", "g", "--topic", "t", "--first", "--last"], "one of them"),
        (["group", "g", "--topic", "t", "--to-time", "5"], "--to-offset 5 goes there"),
    ],
)
def test_what_makes_no_sense_is_not_asked_of_control(
    control: ScriptedControl, meshctl: Meshctl, said: list[str], why: str
) -> None:
    result = meshctl("replay", *said)
    assert (result.exit_code, control.calls) == (2, [])
    assert why in " ".join(result.output.split())


def test_replays_are_listed_and_shown(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["ListReplays"] = pb.ListReplaysResponse(replays=[replay(RUNNING, at(300, 190, 10))])
    listed = meshctl("replay", "list", "--open")
    assert asked(control, "ListReplays").open_only
    assert "orders to the backend of s1" in listed.output
    assert "50% (190 records, 10 failed)" in listed.output
    as_json = meshctl("replay", "list", "-o", "json")
    assert json.loads(as_json.output)["replays"][0]["name"] == "replays/3f9a"
    control.answers["GetReplay"] = replay(RUNNING, at(300, 190, 10), reason="tax")
    shown = meshctl("replay", "show", "3f9a")
    assert asked(control, "GetReplay").name == "replays/3f9a"
    assert rows(shown)[-1] == ["orders", "0", "100", "500", "300", "190", "10"]


def test_a_replay_is_cancelled(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["CancelReplay"] = replay(cancelling=True)
    result = meshctl("replay", "cancel", "3f9a", "--reason", "wrong topic")
    assert result.output == "replay 3f9a is to end where it is; its member says when\n"
    assert asked(control, "CancelReplay").reason == "wrong topic"


def test_events_read_as_sentences() -> None:
    cases = (
        (events.ReplayStarted(replay=replay()), "replay 3f9a: orders to the backend of s1"),
        (events.ReplayAssigned(name="replays/3f9a", member="members/s1"), "replay 3f9a is carried out by s1"),
        (events.ReplayProgressed(name="replays/3f9a", partitions=[at(200, 1)]), "replay 3f9a: 1 record done"),
        (events.ReplayCancelOrdered(name="replays/3f9a"), "replay 3f9a is to end where it is"),
        (events.ReplayEnded(name="replays/3f9a", state=DONE, description="ok"), "replay 3f9a done: ok"),
    )
    fields = ("replay_started", "replay_assigned", "replay_progressed", "replay_cancel_ordered", "replay_ended")
    for field, (payload, sentence) in zip(fields, cases, strict=True):
        event = events.Event()
        getattr(event, field).CopyFrom(payload)
        assert wording.event(event) == sentence
