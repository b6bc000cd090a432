"""Shared parts of commands about mirrors and content rules: options of every change, and their types."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click
import yaml
from google.protobuf.json_format import ParseDict, ParseError

from mesh.rpc import record_rules
from meshctl.completions import record_rule_ids
from meshctl.record_rules import STARTS, TRANSFORMS, start_at, target, transform

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class _Read(click.ParamType):
    """A value that a given function parses."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


START = _Read("WHERE", start_at)
TRANSFORM = _Read("CHANGE", transform)
TARGET = _Read("[CLUSTER/]TOPIC", target)

rule_argument = click.argument("rule_id", metavar="ID", shell_complete=record_rule_ids)

start_option = click.option(
    "--start", type=START, help=f"The beginning, also of topics that are found later: {STARTS}."
)
transform_option = click.option(
    "--transform",
    "transforms",
    type=TRANSFORM,
    multiple=True,
    help=f"A change of each record, repeatable, in this order: {', '.join(TRANSFORMS)}.",
)
file_option = click.option(
    "-f",
    "--file",
    "stream",
    type=click.File("r", encoding="utf-8"),
    help="The rule as YAML or JSON, with the fields of RecordRuleSpec, in place of options; - is stdin.",
)


def change_options(command: F) -> F:
    """The options of every change of a record rule, given to the command as `options`."""

    @click.option("--reason", default="", help="Why, for the history.")
    @click.option("--dry-run", is_flag=True, help="Check only and show what would be.")
    @click.option(
        "--expected-revision",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Refuse when the rule changed since revision N.",
    )
    @click.option(
        "--allow-unreachable", is_flag=True, help="Go on although a cluster does not answer; its topics go unchecked."
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, reason: str, dry_run: bool, expected_revision: int, allow_unreachable: bool, **kwargs: Any
    ) -> Any:
        options = record_rules.RecordRuleOptions(
            expected_revision=expected_revision, validate_only=dry_run, request_id=str(uuid.uuid4()), reason=reason,
            allow_unreachable=allow_unreachable,
        )  # fmt: skip
        return command(*args, options=options, **kwargs)

    return cast(F, wrapped)


def spec_from(stream: Any, rule_id: str, kind: str) -> record_rules.RecordRuleSpec:
    """The rule in a file: a mapping with the fields of RecordRuleSpec, or of its `mirror` or `content` alone."""
    try:
        said = yaml.safe_load(stream.read())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{stream.name} is neither YAML nor JSON: {error}") from error
    if not isinstance(said, dict):
        raise click.UsageError(f"{stream.name}: expected a mapping with the fields of a record rule")
    if kind not in said:
        said = {**({"start": said.pop("start")} if "start" in said else {}), kind: said}
    try:
        spec = ParseDict(said, record_rules.RecordRuleSpec())
    except ParseError as error:
        raise click.UsageError(f"{stream.name}: {error}") from error
    if spec.record_rule_id not in ("", rule_id):
        raise click.UsageError(f"{stream.name} is about {spec.record_rule_id!r}, not {rule_id!r}")
    spec.record_rule_id = rule_id
    return spec
