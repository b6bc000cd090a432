"""`meshctl apply` and `meshctl export`: the mesh from a file, and a file from the mesh."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import grpc

from mesh.rpc import admin
from meshctl.commands.applying import Applied, Applying, Options
from meshctl.commands.changes import show_change
from meshctl.commands.files import file_options, notices_document, plan_document, plan_of, read, show_plan
from meshctl.commands.rule_options import consent_options, member_options
from meshctl.commands.watching import Watch, ended_by_signals, say
from meshctl.connection import Connection
from meshctl.failures import from_rpc
from meshctl.meshfile import writing
from meshctl.meshfile.plan import Plan
from meshctl.output import as_dict, print_json
from meshctl.past import PastMoment, as_of
from meshctl.session import Command, Session, pass_session


@click.command(cls=Command)
@file_options(required=True)
@click.option("--dry-run", is_flag=True, help="Show the plan and let control check it; change nothing.")
@consent_options
@member_options
@click.option("--reason", default="", help="Why, for the history.")
@click.option("--watch", is_flag=True, help="Go on: apply the file whenever its text changes, and every --resync.")
@click.option(
    "--resync",
    type=click.IntRange(min=10),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: apply the file again after so long, so that changes by hand do not stay.",
)
@pass_session
def apply(
    session: Session,
    /,
    stream: Any,
    overrides: dict[str, list[str]],
    replace: bool,
    prune: bool,
    dry_run: bool,
    watch: bool,
    resync: int,
    **consents: Any,
) -> None:
    """Bring the mesh to what a file says: clusters, rules, record rules, ACLs, tenants. Again, it changes nothing.

    \b
    The file is one of
      mesh.yaml   clusters:     [{cluster_name, bootstrap_servers, partition_count,
                                  producer_config, consumer_config}, ...]
                  rules:        [{topic | topic_prefix | topic_regex, target_cluster, upstream_topic},
                                 {unmatched_topics: true, target_cluster},
                                 {group | group_prefix | ..., target_cluster, shadow_topics},
                                 {transactional_id | ..., target_cluster, span_clusters},
                                 {client_software | ..., node_view: single | per_cluster}, ...]
                                any but the last also with client: {principal, client_id,
                                client_id_prefix, software_name, source_networks}
                  record_rules: [{record_rule_id, mirror: {...} | content: {...}, start}, ...]
                                with the fields of RecordRuleSpec
                  acls:         [{principal, operations, topic | topic_prefix | group | ...
                                  | cluster: true, host, permission: allow | deny}, ...]
                  acl_policy:   {mode: "off" | observe | enforce, super_users}
                  tenants:      [{tenant, prefix, members, shared_topics, writable_topics}, ...]
      Envoy       the configuration of envoy.filters.network.kafka_mesh

    The plan is shown as Terraform shows one: + comes, ~ changes, - goes. A rule whose match is there already becomes
    what the file says where it stands, and new rules go last. Nothing is removed without --prune (or, for rules alone,
    --replace). All rules change in one step. Control checks all clusters before the first one is changed.
    The mode of ACLs and the super users stay where acl_policy does not name them, with --prune, too.

    \b
    Examples:
      meshctl apply -f mesh.yaml --dry-run
      meshctl apply -f mesh.yaml --reason 'tenant a moves'
      meshctl apply -f mesh.yaml --prune
      meshctl export | meshctl apply -f - --prune     # changes nothing
      meshctl apply -f mesh.yaml --prune --watch
    """
    options = Options(dry_run, **consents)

    def once(source: Any, connection: Connection, *, quiet: bool) -> None:
        plan = plan_of(stream.name, read(source, overrides), connection, replace=replace, prune=prune)
        if quiet and plan.changes_nothing:
            return
        if not session.as_json:
            show_plan(plan)
        applied = Applying(connection, plan, options).run()
        if session.as_json:
            print_json(_document(plan, options, applied))
        else:
            _show_result(plan, options, applied)

    if not watch:
        once(stream, session.connect(), quiet=False)
    elif stream.name == "<stdin>":
        raise click.UsageError("--watch needs a file with a name: standard input does not change")
    else:
        _follow(session, Path(stream.name), once, resync)


def _follow(session: Session, path: Path, once: Callable[..., None], resync: int) -> None:
    def apply_text(text: str) -> None:
        source = io.StringIO(text)
        source.name = str(path)
        connection = session.opened()
        try:
            once(source, connection, quiet=True)
        except grpc.RpcError as error:
            raise from_rpc(error, connection.endpoint) from error
        finally:
            connection.close()
        say(f"the mesh is as {path} says")

    def failed(error: click.ClickException) -> None:
        say(f"{path} is not applied; meshctl tries again:")
        error.show()

    watch = Watch(path, apply_text, failed, resync)
    with ended_by_signals(watch.ended):
        watch.run()


@click.command(cls=Command)
@click.option(
    "--as-of",
    "moment",
    type=PastMoment(),
    metavar="WHEN",
    help="As it was: a revision, or a time.",
)
@pass_session
def export(session: Session, moment: int | datetime | None) -> None:
    """Write the mesh as a mesh.yaml for `meshctl apply`: clusters, rules, mirrors and content rules, ACLs, tenants.

    Secrets are references in a mesh, and stay so in the file. With -o json the same document is JSON.

    \b
    Examples:
      meshctl export > mesh.yaml
      meshctl export --as-of 41 > before.yaml
      meshctl export --as-of 2026-05-01T02:00:00Z | meshctl diff -f - --prune
    """
    connection = session.connect()
    if moment is None:
        rules, _revision = connection.all_rules()
        document = writing.document(
            connection.all_clusters(), rules, connection.all_record_rules(), connection.acl_policy(),
            connection.all_tenants(),
        )  # fmt: skip
    else:
        then = connection.call(connection.decisions.GetAsOf, as_of(moment))
        policy = connection.acl_policy(then.revision)
        tenants = connection.all_tenants(then.revision)
        document = writing.document(then.clusters, then.rules, then.record_rules, policy, tenants)
    if session.as_json:
        print_json(document)
        return
    click.echo(writing.text(document), nl=False)


def _show_result(plan: Plan, options: Options, applied: Applied) -> None:
    if applied.rules is not None:
        show_change(applied.rules, dry_run=options.dry_run)
    if plan.changes_nothing:
        click.echo("nothing to change")
    elif options.dry_run and plan.needs_new_clusters and plan.changes_rules:
        click.echo("control can check the rules only when their clusters are registered; nothing was changed")
    elif options.dry_run and applied.rules is None:
        click.echo("checked only, nothing was changed")
    elif not options.dry_run and (applied.rules is None or plan.several):
        click.echo("the mesh is as the file says")


def _document(plan: Plan, options: Options, applied: Applied) -> dict[str, Any]:
    answer: admin.RuleChangeResponse | None = applied.rules
    return {
        "dry_run": options.dry_run,
        "plan": plan_document(plan),
        "notices": notices_document(plan),
        "clusters": [as_dict(each) for each in applied.clusters],
        "rule_change": as_dict(answer) if answer is not None else None,
        "record_rules": [as_dict(each) for each in applied.record_rules],
        "tenants": {"changed": applied.tenants_changed},
        "acls": {"added": applied.acls_added, "removed": applied.acls_removed},
        "removed": applied.removed,
    }
