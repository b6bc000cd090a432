"""`meshctl topic fork --delete`: the plan, the question, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from mesh.rpc import topics as pb
from meshctl.failures import ExitCode
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
FORK = pb.TopicFork(name="topics/staging", source_topic="apples", cluster="c2", past_clusters=["c1"])


@pytest.fixture
def forked(control: ScriptedControl) -> ScriptedControl:
    control.answers["ListTopicForks"] = pb.ListTopicForksResponse(forks=[FORK])
    past = pb.TopicPart(cluster="c1", upstream_topic="apples", past_of="apples")
    past.partitions.add(start=0, end=5)
    own = pb.TopicPart(cluster="c2", upstream_topic="staging")
    own.partitions.add(start=5, end=6)
    control.answers["GetTopicParts"] = pb.GetTopicPartsResponse(parts=[past, own])
    control.answers["DeleteTopicFork"] = FORK
    return control


def test_the_plan_says_what_goes_and_what_stays_and_changes_nothing(forked: ScriptedControl, meshctl: Meshctl) -> None:
    result = meshctl("topic", "fork", "staging", "--delete", "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "- stays: topic apples on c1, 5 records of the fork",
        "- is deleted: topic staging on c2, 1 record of the fork",
    ]
    assert not forked.requests("DeleteTopicFork")


def test_nobody_deletes_a_fork_unasked(forked: ScriptedControl, meshctl: Meshctl) -> None:
    assert meshctl("topic", "fork", "staging", "--delete", stdin="n\n").exit_code == ExitCode.REFUSED
    assert meshctl("topic", "fork", "staging", "--delete", "-o", "json").exit_code == ExitCode.BAD_REQUEST
    assert not forked.requests("DeleteTopicFork")
    done = meshctl("topic", "fork", "staging", "--delete", "--reason", "tried", stdin="y\n")
    assert done.exit_code == 0, done.output
    assert "the fork staging of apples is deleted; the records of apples stay" in done.stdout
    [request] = forked.requests("DeleteTopicFork")
    assert (request.name, request.reason) == ("topics/staging", "tried")


def test_a_topic_that_is_no_fork_is_not_deleted(forked: ScriptedControl, meshctl: Meshctl) -> None:
    result = meshctl("topic", "fork", "apples", "--delete", stdin="y\n")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "topic 'apples' is no fork" in result.output
    assert not forked.requests("DeleteTopicFork")


@pytest.mark.parametrize(
    "arguments",
    [
        ("apples", "--as", "staging", "--to", "c2"),
        ("apples", "--as", "staging", "--at", "latest", "--to", "c2", "--yes"),
        ("staging", "--delete", "--to", "c2"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    forked: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...]
) -> None:
    assert meshctl("topic", "fork", *arguments).exit_code == ExitCode.BAD_REQUEST
    assert not forked.requests("ForkTopic")
    assert not forked.requests("DeleteTopicFork")
