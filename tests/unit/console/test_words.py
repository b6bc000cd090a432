"""Messages of control as the pages word them."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import admin, replays
from mesh.wording import word
from services.console import words
from services.console.parts import Tone


def test_a_state_and_its_tone() -> None:
    done = words.toned(word(replays.ReplayState, replays.REPLAY_STATE_DONE))
    assert (done.text, done.tone) == ("done", Tone.GOOD)
    assert word(replays.ReplayState, 0) == "-"
    assert word(replays.ReplayState, 99) == "unknown to this release (99)"
    assert words.toned("left behind").tone is Tone.BAD
    assert words.toned("a word").tone is Tone.PLAIN


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
