"""`meshctl cluster drain`, and files of certificates: what an operator types, what control is asked, what is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from mesh import durations
from mesh.rpc import drains, move_certificates, topic_moves
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
WAITING, MOVED, LEFT = (
    drains.DRAIN_TOPIC_STATE_WAITING, drains.DRAIN_TOPIC_STATE_MOVED, drains.DRAIN_TOPIC_STATE_LEFT,
)  # fmt: skip
SPEC = drains.DrainSpec(source_cluster="c1", target_cluster="c2", at_once=2)


def drain(state: drains.DrainState.ValueType = drains.DRAIN_STATE_DONE, name: str = "drains/d1") -> drains.Drain:
    found = drains.Drain(name=name, spec=SPEC, state=state, actor="ada")
    found.topics.add(topic="apples", state=MOVED, partitions=3, move="topicmoves/m1", records=9, confirmed=True)
    found.topics.add(topic="bananas", state=LEFT, partitions=1, problem="it is compacted")
    found.counts.moved, found.counts.left = 1, 1
    found.remainder.groups.append("till")
    found.remainder.rules.append("shop")
    return found


def test_each_option_reaches_control(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["StartDrain"] = control.answers["GetDrain"] = drain(drains.DRAIN_STATE_RUNNING)
    options = (
        "--topics", "shop.*", "--at-once", "4", "--rate", "2.5", "--window", "23:30-05:00", "--pause-at-most", "0.5s",
        "--cuts", "7", "--without", "g1", "--reason", "new disks",
    )  # fmt: skip
    assert meshctl("cluster", "drain", "c1", "--to", "c2", *options).exit_code == 0
    [request] = control.requests("StartDrain")
    window = drains.DrainWindow(from_minute=23 * 60 + 30, to_minute=300)
    assert request.spec == drains.DrainSpec(
        source_cluster="c1", target_cluster="c2", topics="shop.*", at_once=4, bytes_per_second=2_500_000,
        window=window, hold_budget=durations.of_ms(500), cuts_at_most=7, without_members=["g1"],
    )  # fmt: skip
    assert (request.validate_only, request.reason, bool(request.request_id)) == (False, "new disks", True)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--window", "1-5", "write it like 01:00-05:00, in UTC"),
        ("--window", "01:60-05:00", "write it like 01:00-05:00, in UTC"),
        ("--pause-at-most", "1", "write it like 1s, 0.5s or 500ms"),
        ("--pause-at-most", "0s", "write it like 1s, 0.5s or 500ms"),
        ("--rate", "0", "0.0 is not in the range"),
    ],
)
def test_a_wrong_value_is_refused_with_a_right_one(meshctl: Meshctl, option: str, value: str, says: str) -> None:
    result = meshctl("cluster", "drain", "c1", "--to", "c2", option, value)
    assert (result.exit_code, says in result.output) == (2, True)


def test_a_plan_shows_each_topic_and_its_exit_code_says_whether_all_fit(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    plan = drains.Drain(spec=SPEC, notes=["c1 is the mesh's home"])
    plan.topics.add(topic="apples", state=WAITING, partitions=3, bytes=5_000_000, seconds=10)
    plan.topics.add(topic="cherries", state=WAITING, partitions=3)
    plan.counts.waiting = 2
    control.answers["StartDrain"] = plan
    result = meshctl("cluster", "drain", "c1", "--to", "c2", "--dry-run")
    assert result.exit_code == 0
    for text in ("apples", "5.0", "c1 is the mesh's home", "2 topics fit, 0 stay; the copies take some 5 s"):
        assert text in result.output
    plan.counts.left = 1
    result = meshctl("cluster", "drain", "c1", "--to", "c2", "--dry-run")
    assert (result.exit_code, "1 topics stay on c1" in result.output) == (1, True)
    assert all(request.validate_only and not request.request_id for request in control.requests("StartDrain"))


def test_an_ended_drain_shows_its_certificates_and_what_is_still_on_the_cluster(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    control.answers["GetDrain"] = drain()
    output = meshctl("cluster", "drain", "show", "d1").output
    for text in ("9 confirmed", "it is compacted", "groups on c1: till", "topics on c1: none", "rules on c1: shop"):
        assert text in output
    assert [each.name for each in control.requests("GetDrain")] == ["drains/d1"]


@pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
def test_a_drain_is_led_by_its_id(control: ScriptedControl, meshctl: Meshctl, command: str) -> None:
    method = f"{command.capitalize()}Drain"
    control.answers[method] = drain(drains.DRAIN_STATE_PAUSED)
    result = meshctl("cluster", "drain", command, "d1", "--reason", "too busy")
    assert "drain d1 of c1 is paused" in result.output
    [request] = control.requests(method)
    assert (request.name, request.reason, bool(request.request_id)) == ("drains/d1", "too busy", True)


def test_waiting_ends_with_the_drain_and_its_exit_code_says_whether_all_have_moved(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    control.answers["StartDrain"] = drain(drains.DRAIN_STATE_RUNNING)
    control.answers["GetDrain"] = drain()
    result = meshctl("cluster", "drain", "c1", "--to", "c2", "--wait")
    assert (result.exit_code, "1 topics stay on c1" in result.output) == (1, True)


def test_a_certificate_goes_to_a_file_and_its_file_to_the_check(
    control: ScriptedControl, meshctl: Meshctl, tmp_path: Path
) -> None:
    signed = move_certificates.SignedTopicMove(move=b"what is signed")
    signed.signature.value = b"by control"
    control.answers["SignTopicMove"] = signed
    file = tmp_path / "apples.certificate"
    assert meshctl("topic", "move", "certificate", "m1", "--out", str(file)).exit_code == 0
    [request] = control.requests("SignTopicMove")
    assert request.name == "topicmoves/m1"
    verified = move_certificates.VerifiedTopicMove(
        move=topic_moves.MoveWithRecords(name="topicmoves/m1", spec=topic_moves.TopicMoveSpec(topic="apples")),
        signer="CN=control-1",
        now=topic_moves.TopicMoveCertificate(confirmed=True),
    )
    control.answers["VerifySignedTopicMove"] = verified
    result = meshctl("topic", "move", "verify", str(file))
    assert (result.exit_code, "signed by CN=control-1" in result.output) == (0, True)
    [sent] = control.requests("VerifySignedTopicMove")
    assert sent.signed == signed
    verified.now.confirmed = False
    verified.now.differences.append("partition 0 differs")
    assert meshctl("topic", "move", "verify", str(file)).exit_code == 1
    file.write_text("no certificate")
    result = meshctl("topic", "move", "verify", str(file))
    assert (result.exit_code, "is no file of `meshctl topic move certificate`" in result.output) == (2, True)
    assert meshctl("topic", "move", "certificate", "m1", "--out", str(tmp_path / "no" / "where")).exit_code == 2
