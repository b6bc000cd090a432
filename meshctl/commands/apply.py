"""`meshctl apply`: bring the mesh to what a file says. Reads, plans, shows the plan, asks control, then does it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import click
import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from mesh.rpc import admin
from meshctl.commands.changes import show_change
from meshctl.commands.rule_options import consent_options
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError, Violation, from_rpc
from meshctl.meshfile import plan as planning
from meshctl.meshfile.entries import bootstrap_error
from meshctl.meshfile.model import FileError, MeshFile
from meshctl.meshfile.plan import Action, ClusterStep, Plan
from meshctl.meshfile.reading import parse, with_bootstrap
from meshctl.output import as_dict, print_json, print_table
from meshctl.session import Command, Session, pass_session

MOST_BYTES = 16 * 1024 * 1024  # a file of this size is no configuration


@dataclass(frozen=True, slots=True)
class Options:
    """How to apply."""

    replace: bool
    dry_run: bool
    allow_unreachable: bool
    create_topics: bool
    accept_skip: bool
    allow_shadowed: bool
    reason: str


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


@click.command(cls=Command)
@click.option(
    "-f",
    "--file",
    "stream",
    type=click.File("r", encoding="utf-8"),
    required=True,
    help="mesh.yaml, or Envoy's file; - is stdin.",
)
@click.option(
    "--bootstrap",
    "overrides",
    metavar="CLUSTER=HOST:PORT,...",
    multiple=True,
    callback=_overrides,
    help="Another address for a cluster of the file; repeatable.",
)
@click.option("--replace", is_flag=True, help="Make the file's rules the whole rule set. Clusters stay registered.")
@click.option("--dry-run", is_flag=True, help="Show the plan and let control check it; change nothing.")
@consent_options
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def apply(
    session: Session,
    stream: Any,
    overrides: dict[str, list[str]],
    replace: bool,
    dry_run: bool,
    allow_unreachable: bool,
    create_topics: bool,
    accept_skip: bool,
    allow_shadowed: bool,
    reason: str,
) -> None:
    """Register or update the clusters of a file and set its rules. Applying it again changes nothing.

    \b
    The file is one of
      mesh.yaml   clusters: [{cluster_name, bootstrap_servers, partition_count,
                              producer_config, consumer_config}, ...]
                  rules:    [{topic | topic_prefix | topic_regex, target_cluster, upstream_topic},
                             {group | group_prefix | ..., target_cluster, shadow_topics},
                             {transactional_id | ..., target_cluster, span_clusters},
                             {client_software | ..., node_view: single | per_cluster}, ...]
      Envoy       the configuration of envoy.filters.network.kafka_mesh

    Without --replace, a rule whose match is there already becomes what the file says where it stands, and new rules go
    last. All rules change in one step. Control checks all clusters before the first one is changed.
    """
    options = Options(replace, dry_run, allow_unreachable, create_topics, accept_skip, allow_shadowed, reason)
    file = _read(stream, overrides)
    connection = session.connect()
    plan = _plan(stream.name, file, connection, options)
    if not session.as_json:
        _show_plan(plan)
    _check_clusters(connection, plan, options)
    clusters = [] if dry_run else _change_clusters(connection, plan, options)
    answer = _change_rules(connection, plan, options)
    if session.as_json:
        print_json(_document(plan, options, clusters, answer))
        return
    _show_result(plan, options, answer)


def _read(stream: Any, overrides: dict[str, list[str]]) -> MeshFile:
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


def _refused_file(name: str, error: FileError) -> MeshctlError:
    violations = [Violation(f"line {each.line}: {each.place}".removesuffix(": "), each.text) for each in error.errors]
    return MeshctlError(f"{name} can't be applied; nothing was changed", ExitCode.BAD_REQUEST, violations=violations)


def _plan(name: str, file: MeshFile, connection: Connection, options: Options) -> Plan:
    rules, revision = connection.all_rules()
    try:
        return planning.make(
            file,
            clusters=connection.all_clusters(),
            rules=rules,
            rules_revision=revision,
            members=connection.status().members,
            replace=options.replace,
        )
    except FileError as error:
        raise _refused_file(name, error) from error


def _check_clusters(connection: Connection, plan: Plan, options: Options) -> None:
    """Let control check every cluster that changes, before the first is changed; all complaints at once."""
    failures: list[MeshctlError] = []
    violations: list[Violation] = []
    for step in plan.cluster_changes:
        try:
            _change(connection, step, options, validate_only=True)
        except grpc.RpcError as error:
            failure = from_rpc(error, connection.endpoint)
            failures.append(failure)
            violations.append(Violation(step.spec.cluster_name, failure.message))
            violations += [
                Violation(f"{step.spec.cluster_name} {each.place}", each.text) for each in failure.violations
            ]
    if failures:
        worst = failures[0]
        raise MeshctlError(
            "control refuses the file's clusters; nothing was changed",
            ExitCode(worst.exit_code),
            status=worst.status,
            violations=violations,
        )


def _change_clusters(connection: Connection, plan: Plan, options: Options) -> list[admin.Cluster]:
    """Register and update, one after the other. A failure names what was done before it."""
    done: list[admin.Cluster] = []
    for step in plan.cluster_changes:
        try:
            done.append(_change(connection, step, options, validate_only=False))
        except grpc.RpcError as error:
            failure = from_rpc(error, connection.endpoint)
            names = ", ".join(each.spec.cluster_name for each in done) or "nothing"
            text = f"changed before that: {names}; apply the file again when this is put right, it goes on from there"
            failure.violations = (*failure.violations, Violation("", text))
            raise failure from error
    return done


def _change(connection: Connection, step: ClusterStep, options: Options, *, validate_only: bool) -> admin.Cluster:
    if step.action is Action.CREATE:
        register = admin.RegisterClusterRequest(
            spec=step.spec,
            allow_unreachable=options.allow_unreachable,
            validate_only=validate_only,
            request_id=str(uuid.uuid4()),
            reason=options.reason,
        )
        return connection.call(connection.clusters.RegisterCluster, register)
    update = admin.UpdateClusterRequest(
        name=f"clusters/{step.spec.cluster_name}",
        spec=step.spec,
        update_mask=FieldMask(paths=step.fields),
        expected_revision=step.revision,
        allow_unreachable=options.allow_unreachable,
        validate_only=validate_only,
        request_id=str(uuid.uuid4()),
        reason=options.reason,
    )
    return connection.call(connection.clusters.UpdateCluster, update)


def _change_rules(connection: Connection, plan: Plan, options: Options) -> admin.RuleChangeResponse | None:
    """All rules in one step, provided that nobody else changed them since the plan was made. None: nothing to ask."""
    if not plan.changes_rules or (options.dry_run and plan.needs_new_clusters):
        return None
    request = admin.ReplaceRulesRequest(
        rules=plan.rule_set,
        options=admin.ChangeOptions(
            expected_revision=plan.rules_revision,
            validate_only=options.dry_run,
            request_id=str(uuid.uuid4()),
            reason=options.reason,
            create_missing_topics=options.create_topics,
            accept_skip=options.accept_skip,
            allow_shadowed=options.allow_shadowed,
            allow_unreachable=options.allow_unreachable,
        ),
    )
    return connection.call(connection.rules.ReplaceRules, request)


def _show_plan(plan: Plan) -> None:
    rows = [(step.action, "cluster", step.spec.cluster_name, step.detail) for step in plan.clusters]
    rows += [(step.action, "rule", step.spec.rule_id or "(new)", step.detail) for step in plan.rules]
    print_table(("ACTION", "KIND", "NAME", "DETAIL"), rows, empty="The file has neither clusters nor rules.")
    for notice in plan.notices:
        click.echo(f"note: {notice}")


def _show_result(plan: Plan, options: Options, answer: admin.RuleChangeResponse | None) -> None:
    if answer is not None:
        show_change(answer, dry_run=options.dry_run)
    elif options.dry_run and plan.needs_new_clusters and plan.changes_rules:
        click.echo("control can check the rules only when their clusters are registered; nothing was changed")
    elif options.dry_run and plan.cluster_changes:
        click.echo("checked only, nothing was changed")
    elif plan.cluster_changes:
        click.echo("clusters are as the file says; the rules were so already")
    else:
        click.echo("nothing to change")


def _document(
    plan: Plan, options: Options, clusters: list[admin.Cluster], answer: admin.RuleChangeResponse | None
) -> dict[str, Any]:
    return {
        "dry_run": options.dry_run,
        "plan": {
            "clusters": [
                {"action": step.action.value, "cluster_name": step.spec.cluster_name, "detail": step.detail}
                for step in plan.clusters
            ],
            "rules": [
                {"action": step.action.value, "rule": as_dict(step.spec), "detail": step.detail} for step in plan.rules
            ],
        },
        "notices": [{"line": each.line, "place": each.place, "text": each.text} for each in plan.notices],
        "clusters": [as_dict(each) for each in clusters],
        "rule_change": as_dict(answer) if answer is not None else None,
    }
