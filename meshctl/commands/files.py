"""A file against the mesh: the options for the file and its use, the plan, and the text of a plan."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click

from mesh.acls.words import mode_word
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError, Violation
from meshctl.meshfile import plan as planning
from meshctl.meshfile.acl_plan import NO_POLICY
from meshctl.meshfile.action import Action
from meshctl.meshfile.entries import bootstrap_error
from meshctl.meshfile.model import FileError, MeshFile
from meshctl.meshfile.plan import Plan
from meshctl.meshfile.reading import parse, with_bootstrap
from meshctl.output import as_dict

F = TypeVar("F", bound=Callable[..., Any])

MOST_BYTES = 16 * 1024 * 1024  # a file of this size is no configuration
SIGNS = {Action.CREATE: "+", Action.UPDATE: "~", Action.MOVE: "~", Action.REMOVE: "-"}
COUNTED = (("+", "to add"), ("~", "to change"), ("-", "to remove"))


def file_options(*, required: bool) -> Callable[[F], F]:
    """-f, --bootstrap, --replace and --prune, given to the command as `stream`, `overrides`, `replace` and `prune`."""
    options = (
        click.option(
            "-f",
            "--file",
            "stream",
            type=click.File("r", encoding="utf-8"),
            required=required,
            help="mesh.yaml, or Envoy's file; - is stdin.",
        ),
        click.option(
            "--bootstrap",
            "overrides",
            metavar="CLUSTER=HOST:PORT,...",
            multiple=True,
            callback=_overrides,
            help="Another address for a cluster of the file; repeatable.",
        ),
        click.option(
            "--replace", is_flag=True, help="Make the file's rules the whole rule set. Clusters stay registered."
        ),
        click.option(
            "--prune",
            is_flag=True,
            help="Remove what the file does not name, in each section that it has: rules, record rules, ACLs, clusters "
            "(but the home cluster).",
        ),
    )

    def decorate(command: F) -> F:
        return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)

    return decorate


def _overrides(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in values:
        name, _separator, text = value.partition("=")
        addresses = [each.strip() for each in text.split(",") if each.strip()]
        if not name or not addresses:
            raise click.BadParameter(f"{value!r}: expected CLUSTER=HOST:PORT,...")
        for address in addresses:
            if error := bootstrap_error(address):
                raise click.BadParameter(error)
        found[name] = addresses
    return found


def read(stream: Any, overrides: dict[str, list[str]]) -> MeshFile:
    """The file; all of its errors at once, before anything is asked."""
    try:
        text = stream.read(MOST_BYTES + 1)
    except UnicodeDecodeError as error:
        raise MeshctlError(f"{stream.name} is not UTF-8 text ({error.reason})", ExitCode.BAD_REQUEST) from error
    if len(text) > MOST_BYTES:
        raise MeshctlError(f"{stream.name} has more than {MOST_BYTES} characters", ExitCode.BAD_REQUEST)
    try:
        return with_bootstrap(parse(text), overrides)
    except FileError as error:
        raise _refused_file(stream.name, error) from error
    except KeyError as error:
        raise click.UsageError(f"--bootstrap {error.args[0]}: the file has no such cluster") from error


def plan_of(name: str, file: MeshFile, connection: Connection, *, replace: bool, prune: bool) -> Plan:
    """The plan: the changes that the file makes to the mesh as it is."""
    rules, revision = connection.all_rules()
    try:
        return planning.make(
            file,
            clusters=connection.all_clusters(),
            rules=rules,
            rules_revision=revision,
            members=connection.status().members,
            record_rules=() if file.record_rules is None else connection.all_record_rules(),
            policy=connection.acl_policy() if speaks_of_acls(file) else NO_POLICY,
            known_tenants=() if file.tenants is None else connection.all_tenants(),
            replace=replace,
            prune=prune,
        )
    except FileError as error:
        raise _refused_file(name, error) from error


def speaks_of_acls(file: MeshFile) -> bool:
    return file.acls is not None or file.acl_policy is not None


def _refused_file(name: str, error: FileError) -> MeshctlError:
    violations = [Violation(f"line {each.line}: {each.place}".removesuffix(": "), each.text) for each in error.errors]
    return MeshctlError(f"{name} can't be applied; nothing was changed", ExitCode.BAD_REQUEST, violations=violations)


def show_plan(plan: Plan) -> None:
    """A line for each step, as in Terraform: + added, ~ changed, - removed; then the counts."""
    lines = [(SIGNS[action], kind, name, detail) for action, kind, name, detail in plan.steps if action in SIGNS]
    show_lines(lines)
    for notice in plan.notices:
        click.echo(f"note: {notice}")
    unchanged = sum(action is Action.UNCHANGED for action, *_ in plan.steps)
    kept = f"; {unchanged} as the file says already" if unchanged else ""
    click.echo(f"Plan: {counts(sign for sign, *_ in lines)}{kept}.")


def show_lines(lines: list[tuple[str, str, str, str]]) -> None:
    """Sign, kind, name and detail, in columns."""
    named = [(sign, f"{kind} {name}", detail) for sign, kind, name, detail in lines]
    width = max((len(name) for _, name, _ in named), default=0)
    for sign, name, detail in named:
        click.echo(click.style(f"{sign} {name:<{width}}  {detail}".rstrip(), fg=_COLOURS[sign]))


_COLOURS = {"+": "green", "~": "yellow", "-": "red"}


def counts(signs: Any) -> str:
    """ "1 to add, 0 to change, 2 to remove"."""
    numbers = Counter(signs)
    return ", ".join(f"{numbers[sign]} {words}" for sign, words in COUNTED)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "clusters": [
            {"action": step.action.value, "cluster_name": step.spec.cluster_name, "detail": step.detail}
            for step in plan.clusters
        ],
        "rules": [
            {"action": step.action.value, "rule": as_dict(step.spec), "detail": step.detail} for step in plan.rules
        ],
        "record_rules": [
            {"action": step.action.value, "record_rule": as_dict(step.spec), "detail": step.detail}
            for step in plan.record_rules
        ],
        "acls": [{"action": step.action.value, "acl": as_dict(step.acl)} for step in plan.acls.steps_of_acls],
        "tenants": [{"action": step.action.value, "tenant": as_dict(step.tenant)} for step in plan.tenants],
        "acl_policy": None
        if plan.acls.policy is None
        else {
            "action": plan.acls.policy.action.value,
            "mode": mode_word(plan.acls.policy.mode),
            "super_users": list(plan.acls.policy.super_users),
        },
    }


def notices_document(plan: Plan) -> list[dict[str, Any]]:
    return [{"line": each.line, "place": each.place, "text": each.text} for each in plan.notices]
