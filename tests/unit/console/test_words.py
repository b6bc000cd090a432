"""Messages of control as the pages word them."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import admin, replays, routing
from services.console import words
from services.console.parts import Tone


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (routing.RuleMatch(topic="orders"), "topic orders"),
        (routing.RuleMatch(topic_prefix="shop."), "topic prefix shop."),
        (routing.RuleMatch(unmatched_topics=True), "all other topics"),
        (routing.RuleMatch(group="g", client=routing.ClientMatch(client_id="x")), "group g for client id x"),
        (routing.RuleMatch(), "nothing"),
    ],
)
def test_a_match(match: routing.RuleMatch, text: str) -> None:
    assert words.match_text(match) == text


def test_a_decision() -> None:
    spec = routing.RuleSpec(target_cluster="c1", upstream_topic="shop.{topic}", shadow_topics=True)
    assert words.decision(spec) == "c1 as shop.{topic} with shadow topics"
    single = routing.RuleSpec(match=routing.RuleMatch(client_software="k/1"), node_view=routing.NODE_VIEW_SINGLE)
    assert words.rule(single) == "client software k/1 → nodes single"


def test_a_state_and_its_tone() -> None:
    done = words.toned(words.word(replays.ReplayState, replays.REPLAY_STATE_DONE))
    assert (done.text, done.tone) == ("done", Tone.GOOD)
    assert words.word(replays.ReplayState, 0) == "-"
    assert words.word(replays.ReplayState, 99) == "unknown to this release (99)"
    assert words.toned("left behind").tone is Tone.BAD
    assert words.toned("a word").tone is Tone.PLAIN


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (admin.SetRuleRequest(match=routing.RuleMatch(topic="a"), target_cluster="c2"), "set topic a → c2"),
        (admin.RemoveRuleRequest(name="rules/a"), "remove rule a"),
        (admin.RevertRequest(revision=7), "revert to revision 7"),
        (admin.RevertRequest(last=True), "revert the last change"),
        (admin.GetRuleRequest(name="rules/a"), "a command that this release does not know"),
    ],
)
def test_a_scheduled_command(request_: admin.SetRuleRequest, text: str) -> None:
    packed = AnyMessage()
    packed.Pack(request_)
    assert words.command(packed) == text


def test_sizes_counts_and_times() -> None:
    assert [words.size(each) for each in (0, 1023, 1536, 5 * 1024**4, 3 * 1024**6)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 TiB", "3145728.0 TiB",
    ]  # fmt: skip
    assert words.count(1, "topic") == "1 topic"
    assert words.count(1200, "topic") == "1,200 topics"
    assert words.moment(Timestamp()) == "-"
    assert words.moment(Timestamp(seconds=60)) == "1970-01-01 00:01:00 UTC"


def test_a_silent_skip_stands_out() -> None:
    skip = admin.MoveEffect(topic="a", group="g", kind=admin.MOVE_EFFECT_KIND_SILENT_SKIP)
    *_, cell = words.effect(skip)
    assert not isinstance(cell, str)
    assert cell.tone is Tone.BAD
