"""`meshctl topic move --stitch` and `meshctl topic parts`: what control is asked, and what is shown."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from mesh import durations
from mesh.rpc import record_rules, topic_moves, topics
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
STITCH, COPY = topic_moves.TOPIC_MOVE_KIND_STITCH, topic_moves.TOPIC_MOVE_KIND_COPY
CUT = topic_moves.TopicMoveCut(partition=0, start=2, end=41, base=17, client_offset=95)


def move(state: topic_moves.TopicMoveState.ValueType) -> topic_moves.MoveWithRecords:
    return topic_moves.MoveWithRecords(
        name="topicmoves/m1",
        spec=topic_moves.TopicMoveSpec(
            topic="apples", target_cluster="c2", kind=STITCH, hold_budget=durations.of_ms(700)
        ),
        copy=record_rules.CopySpec(source_cluster="c1", topic="apples", target_cluster="c2", target_topic="apples"),
        state=state,
        cuts=[CUT],
    )


def test_a_move_copies_unless_it_is_to_stitch(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartTopicMove"] = move(topic_moves.TOPIC_MOVE_STATE_WAITING)
    result = meshctl("topic", "move", "apples", "--to", "c2", "--stitch")
    assert (result.exit_code, "from c1 to c2 is waiting" in result.output) == (0, True)
    assert meshctl("topic", "move", "apples", "--to", "c2").exit_code == 0
    assert [request.spec.kind for request in control.requests("StartTopicMove")] == [STITCH, COPY]
    both = meshctl("topic", "move", "apples", "--to", "c2", "--stitch", "--rate", "1000")
    assert (both.exit_code, "--stitch copies nothing" in both.output) == (2, True)


def test_the_undo_of_a_stitched_move_is_one(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetTopicMove"] = control.answers["StartTopicMove"] = move(topic_moves.TOPIC_MOVE_STATE_DONE)
    assert meshctl("topic", "move", "undo", "m1").exit_code == 0
    [request] = control.requests("StartTopicMove")
    assert (request.spec.kind, request.spec.target_cluster, request.spec.hold_budget.ToMilliseconds()) == (
        STITCH,
        "c1",
        700,
    )


def test_a_move_shows_the_map_of_its_cut_and_so_does_its_certificate(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    found = move(topic_moves.TOPIC_MOVE_STATE_DONE)
    control.answers["GetTopicMove"] = found
    lines = [" ".join(line.split()) for line in meshctl("topic", "move", "show", "m1").output.splitlines()]
    assert lines[-2:] == ["PARTITION FROM OLD END NEW BEGIN CLIENTS SEE", "0 2 41 17 95"]
    found.certificate.confirmed = True
    found.certificate.partitions.add(partition=0, start=2, end=41, base=17, client_offset=95)
    shown = meshctl("topic", "move", "show", "m1").output
    assert "0 2 41 17 95" in " ".join(shown.split())
    assert "CRC" not in shown


def test_parts_are_shown_by_partition_with_the_time_until_which_they_need_their_cluster(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    answer = topics.GetTopicPartsResponse(problems=["cluster 'c3' does not answer"])
    old = answer.parts.add(cluster="c1", upstream_topic="apples", visit=1, size_bytes=900, expiry="at the latest soon")
    old.partitions.add(partition=0, start=2, end=41)
    old.partitions.add(partition=1, start=0, end=7)
    answer.parts.add(cluster="c3", upstream_topic="apples", visit=1)
    control.answers["GetTopicParts"] = answer
    result = meshctl("topic", "parts", "apples")
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[1:] == [
        "c1 apples 0 2 41 900 at the latest soon",
        "1 0 7",
        "c3 apples - - - - -",
        "cluster 'c3' does not answer",
    ]
    [request] = control.requests("GetTopicParts")
    assert request.name == "topics/apples"
