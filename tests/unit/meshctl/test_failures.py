"""Errors of control as an operator and as a script see them."""

from __future__ import annotations

import json
from collections.abc import Callable

import grpc
import pytest
from click.testing import CliRunner, Result
from google.rpc import error_details_pb2

from meshctl.cli import cli
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

Meshctl = Callable[..., Result]
INFO = error_details_pb2.ErrorInfo(reason="TEST", domain="mesh")


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, 1),
        (grpc.StatusCode.INTERNAL, 1),
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 3),
        (grpc.StatusCode.NOT_FOUND, 4),
        (grpc.StatusCode.ABORTED, 5),
        (grpc.StatusCode.ALREADY_EXISTS, 5),
    ],
)
def test_each_status_has_its_exit_code_and_the_servers_words(
    control: ScriptedControl, meshctl: Meshctl, code: grpc.StatusCode, exit_code: int
) -> None:
    control.answers["Explain"] = Refusal(code, "the fact, the place, the way out", (INFO,))
    result = meshctl("explain", "apples")
    assert result.exit_code == exit_code
    assert result.stderr == "meshctl: the fact, the place, the way out\n"
    assert not result.stdout


def test_the_way_out_is_named_by_its_option(control: ScriptedControl, meshctl: Meshctl) -> None:
    failure = error_details_pb2.PreconditionFailure()
    failure.violations.add(
        type="TARGET_LACKS_TOPIC", subject="topics/a", description="absent; set create_missing_topics"
    )
    control.answers["SetRule"] = Refusal(
        grpc.StatusCode.FAILED_PRECONDITION, "absent; set create_missing_topics", (failure,)
    )
    result = meshctl("rule", "set", "--topic", "a", "--to", "c1")
    assert result.stderr == "meshctl: absent; give --create-topics\n"


def test_field_violations_are_listed(control: ScriptedControl, meshctl: Meshctl) -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="spec.producer_config[acsk]", description="No such configuration property")
    control.answers["RegisterCluster"] = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "the cluster is not right", (bad,))
    result = meshctl("cluster", "register", "c1", "a:1")
    assert "  spec.producer_config[acsk]: No such configuration property\n" in result.stderr


def test_a_violation_that_the_sentence_says_already_is_not_repeated(control: ScriptedControl, meshctl: Meshctl) -> None:
    failure = error_details_pb2.PreconditionFailure()
    failure.violations.add(type="RULE_SHADOWED", subject="rules/a", description="rule 'a' would never match")
    control.answers["CreateRule"] = Refusal(
        grpc.StatusCode.FAILED_PRECONDITION, "rule 'a' would never match", (failure,)
    )
    result = meshctl("rule", "add", "--topic", "a", "--to", "c1")
    assert result.stderr == "meshctl: rule 'a' would never match\n"


def test_with_json_errors_are_json_too(control: ScriptedControl, meshctl: Meshctl) -> None:
    failure = error_details_pb2.PreconditionFailure()
    failure.violations.add(type="T", subject="topics/apples", description="absent on c2")
    control.answers["SetRule"] = Refusal(grpc.StatusCode.FAILED_PRECONDITION, "topics are absent", (failure,))
    result = meshctl("rule", "set", "--topic", "apples", "--to", "c2", "-o", "json")
    assert json.loads(result.stderr)["error"] == {
        "status": "FAILED_PRECONDITION",
        "message": "topics are absent",
        "violations": [{"place": "topics/apples", "text": "absent on c2"}],
        "exit_code": 1,
    }


def test_nobody_there_says_where_it_was_looked_for_and_what_to_do(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.stop()
    result = meshctl("status")
    assert result.exit_code == 3
    assert f"control at {control.address} (from MESHCTL_ADDRESS) does not answer" in result.stderr
    assert "kafka-mesh up" in result.stderr


def test_watch_without_a_control_at_the_start_is_an_error(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.stop()
    assert meshctl("watch").exit_code == 3


def test_the_help_lists_the_exit_codes() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    for line in ("0  done", "1  refused", "2  bad request", "3  unavailable", "4  not found", "5  conflict"):
        assert line in output
