"""The client commands without a cluster: wrong usage, and nobody there."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from local.clients import consume, produce
from local.load import load

NOBODY = ("--bootstrap", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (produce, ()),
        (produce, ("t", "-m", "x", "--header", "no-value")),
        (produce, ("t", "--partition", "-1")),
        (consume, ()),
        (consume, ("t", "--format", "xml")),
        (consume, ("t", "--count", "0")),
        (load, ("--size", "8")),
        (load, ("--rate", "0")),
        (load, ("--duration", "99999")),
        (load, ("--rate", "1000000", "--duration", "3600")),
    ],
)
def test_wrong_usage_ends_with_2(command: click.Command, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(command, [*arguments, *NOBODY])
    assert result.exit_code == 2, result.output


@pytest.mark.parametrize(
    ("command", "arguments"), [(produce, ("t", "-m", "x", "--timeout", "1")), (consume, ("t", "--timeout", "1"))]
)
def test_nobody_there_ends_with_3_and_says_what_to_do(command: click.Command, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(command, [*arguments, *NOBODY])
    assert result.exit_code == 3
    assert "no Kafka answers at 127.0.0.1:1 (as given)" in result.stderr
    assert "kafka-mesh up" in result.stderr


def test_a_line_without_the_key_separator_is_refused_before_anything_is_sent() -> None:
    result = CliRunner().invoke(produce, ["t", "-m", "apples", "--key-separator", ":", *NOBODY])
    assert result.exit_code == 1
    assert "'apples' has no key separator ':'" in result.stderr
