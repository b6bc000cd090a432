"""`meshctl topic profile`: a profile is ordered, waited for and read; or only read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from click.testing import Result

from mesh.rpc import profiles as pb
from mesh.rpc import replays as replays_pb
from meshctl import profiles
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

Meshctl = Callable[..., Result]


def profile(**said: Any) -> pb.TopicProfile:
    """Of orders: JSON, with keys but for one in ten."""
    sizes = pb.ByteSizes(total=812_000, smallest=90, median=800, p99=1500, largest=3400)
    made = pb.TopicProfile(
        **{
            "topic": "orders", "cluster": "c1", "records": 1000, "is_sample": True, "values": sizes,
            "keys": pb.ByteSizes(total=9000, smallest=8, median=10, p99=12, largest=12), "null_keys": 100,
            "distinct_keys": 700, "top_key_share": 0.37, "partition_records": {0: 100, 1: 600, 2: 300},
            "formats": {"json": 998, "text": 2}, "header_names": {"kind": 500},
            "headers": pb.ByteSizes(largest=12),
            "fields": [
                pb.FieldProfile(path="card.number", types={"string": 990, "number": 10}, null_rate=0.002),
                pb.FieldProfile(path="total", types={"number": 1000}),
            ],
            **said,
        }
    )  # fmt: skip
    made.time.FromDatetime(datetime(2026, 11, 22, 12, tzinfo=UTC))
    return made


def replay(state: replays_pb.ReplayState.ValueType, **fields: Any) -> replays_pb.Replay:
    return replays_pb.Replay(name="replays/3f9a", state=state, **fields)


def test_a_profile_is_ordered_waited_for_and_read(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay(replays_pb.REPLAY_STATE_PENDING)
    control.answers["WatchReplay"] = [replay(replays_pb.REPLAY_STATE_DONE)]
    control.answers["GetTopicProfile"] = profile()
    result = meshctl("topic", "profile", "orders")
    assert result.exit_code == 0, result.output
    [order] = control.requests("StartReplay")
    assert [each.topic for each in order.spec.ranges] == ["orders"]
    assert order.spec.profile.sample == 10_000
    assert control.requests("GetTopicProfile")[0].name == "topics/orders"
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("orders on c1: the last 1000 records, looked at ")
    assert "values: 90 B to 3.4 kB, 800 B in the middle, 99% up to 1.5 kB, 812.0 kB in all" in lines
    assert (
        "keys: 8 B to 12 B, 10 B in the middle, 99% up to 12 B, 9.0 kB in all, 10% null; about 700 different; the most "
        "frequent has 37% of the records"
    ) in lines
    assert "formats: json >99%, text <1%" in lines
    assert "partitions: 3, 60% of the records in partition 1" in lines
    assert "card.number string 99%, number 1% <1%" in lines
    assert "total number 0%" in lines


def test_whole_and_sample_say_how_much_is_read(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay(replays_pb.REPLAY_STATE_DONE)
    control.answers["GetTopicProfile"] = profile()
    assert meshctl("topic", "profile", "orders", "--whole", "--pipeline", "p1").exit_code == 0
    assert meshctl("topic", "profile", "orders", "--sample", "50").exit_code == 0
    asked = [each.spec.profile for each in control.requests("StartReplay")]
    assert [(each.sample, each.pipeline) for each in asked] == [(0, "p1"), (50, "")]
    assert meshctl("topic", "profile", "orders", "--whole", "--last").exit_code == 2


def test_last_reads_nothing_and_programs_get_json(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetTopicProfile"] = profile()
    result = meshctl("topic", "profile", "orders", "--last", "-o", "json")
    assert json.loads(result.stdout)["partition_records"]["1"] == "600"
    assert control.requests("StartReplay") == []
    text = "topic 'orders' has not been looked at; `meshctl topic profile orders` does it"
    control.answers["GetTopicProfile"] = Refusal(grpc.StatusCode.NOT_FOUND, text)
    unknown = meshctl("topic", "profile", "orders", "--last")
    assert (unknown.exit_code, text in unknown.output) == (4, True)


def test_one_that_failed_says_why(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartReplay"] = replay(replays_pb.REPLAY_STATE_FAILED, description="c1 does not answer")
    result = meshctl("topic", "profile", "orders")
    assert result.exit_code == 1
    assert "no profile: replay 3f9a failed: c1 does not answer" in result.output


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"records": 0}, "orders on c1: the last 0 records, looked at"),
        ({"is_sample": False}, "orders on c1: all 1000 records"),
        ({"null_keys": 1000}, "  keys:       all null"),
        ({"header_names": {}}, "  headers:    none"),
    ],
)
def test_what_is_not_there_is_said(said: dict[str, Any], line: str) -> None:
    assert any(each.startswith(line) for each in profiles.report(profile(**said)))
