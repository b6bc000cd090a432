"""`meshctl topic move --stitch` and `meshctl topic parts`: what control is asked, and what is shown."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from mesh import durations
from mesh.rpc import record_rules, topic_moves, topics
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
STITCH, COPY = topic_moves.TOPIC_MOVE_KIND_STITCH, topic_moves.TOPIC_MOVE_KIND_COPY
ANY, BOTH = topic_moves.TOPIC_MOVE_KIND_UNSPECIFIED, topic_moves.TOPIC_MOVE_KIND_STITCH_THEN_COPY
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


def test_control_chooses_the_kind_of_a_move_unless_the_operator_names_one(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    control.answers["StartTopicMove"] = move(topic_moves.TOPIC_MOVE_STATE_WAITING)
    result = meshctl("topic", "move", "apples", "--to", "c2", "--stitch")
    assert (result.exit_code, "from c1 to c2 is waiting" in result.output) == (0, True)
    assert meshctl("topic", "move", "apples", "--to", "c2").exit_code == 0
    assert meshctl("topic", "move", "apples", "--to", "c2", "--copy").exit_code == 0
    assert [request.spec.kind for request in control.requests("StartTopicMove")] == [STITCH, ANY, COPY]
    both = meshctl("topic", "move", "apples", "--to", "c2", "--stitch", "--rate", "1000")
    assert (both.exit_code, "--stitch copies nothing" in both.output) == (2, True)


def behind_a_stitch(state: topic_moves.TopicMoveState.ValueType) -> topic_moves.MoveWithRecords:
    made = move(state)
    made.spec.kind, made.spec.delete_old = BOTH, True
    made.stitch.CopyFrom(topic_moves.TopicMoveStitch(way=made.copy, cuts=[CUT], pause=durations.of_ms(80)))
    made.stitch.way.target_topic = "apples.tail-m1"
    made.copy.source_cluster, made.copy.topic = "c2", "apples.tail-m1"
    made.copy.parts.add(cluster_name="c1", topic="apples", visit=1)
    del made.cuts[:]
    return made


def test_a_move_between_its_cuts_shows_the_first_one_and_its_undo_leads_to_where_it_came_from(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    copying = behind_a_stitch(topic_moves.TOPIC_MOVE_STATE_COPYING)
    control.answers["GetTopicMove"] = copying
    shown = " ".join(meshctl("topic", "move", "show", "m1").output.split())
    assert "m1 apples c1 c2 copying" in shown
    assert "producers waited 80 ms: new records go to apples.tail-m1 on c2" in shown
    assert "0 2 41 17 95" in shown
    copying.deleted.add(cluster_name="c2", topic="apples.tail-m1")
    assert "deleted since: apples.tail-m1 on c2" in meshctl("topic", "move", "show", "m1").output
    control.answers["GetTopicMove"] = behind_a_stitch(topic_moves.TOPIC_MOVE_STATE_DONE)
    control.answers["StartTopicMove"] = copying
    assert meshctl("topic", "move", "undo", "m1").exit_code == 0
    [request] = control.requests("StartTopicMove")
    assert (request.spec.kind, request.spec.target_cluster, request.spec.delete_old) == (BOTH, "c1", False)


def test_a_move_that_is_cancelled_between_its_cuts_says_that_the_log_stays_stitched(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    control.answers["CancelTopicMove"] = behind_a_stitch(topic_moves.TOPIC_MOVE_STATE_CANCELLED)
    assert "the log stays stitched: new records go to apples.tail-m1" in meshctl("topic", "move", "cancel", "m1").output


def test_a_move_that_copies_first_by_itself_says_why(control: ScriptedControl, meshctl: Meshctl) -> None:
    started = move(topic_moves.TOPIC_MOVE_STATE_COPYING)
    started.choice = "share groups read topic 'apples'"
    control.answers["StartTopicMove"] = started
    told = meshctl("topic", "move", "apples", "--to", "c2").output
    assert "it copies first, because: share groups read topic 'apples'" in told


def test_the_old_topic_is_deleted_only_behind_a_move_that_stitches_and_copies(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    for other in ("--copy", "--stitch"):
        refused = meshctl("topic", "move", "apples", "--to", "c2", "--delete-old", other)
        assert (refused.exit_code, "leave --copy and --stitch out" in refused.output) == (2, True)
    control.answers["StartTopicMove"] = move(topic_moves.TOPIC_MOVE_STATE_WAITING)
    assert meshctl("topic", "move", "apples", "--to", "c2", "--delete-old").exit_code == 0
    [request] = control.requests("StartTopicMove")
    assert request.spec.delete_old


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
