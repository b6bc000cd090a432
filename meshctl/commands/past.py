"""`meshctl history`, `diff` and `revert`: what was decided, what differs, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click

from mesh.acls.words import acl_text
from mesh.rpc import acls, admin
from mesh.wording import actor_text, rule_text
from meshctl import wording
from meshctl.commands.changes import carry_out
from meshctl.commands.files import (
    file_options,
    notices_document,
    plan_document,
    plan_of,
    read,
    show_lines,
    show_plan,
)
from meshctl.commands.rule_options import change_options
from meshctl.completions import cluster_names, instance_names, replay_ids, rule_ids, sidecar_names
from meshctl.meshfile.acl_plan import names
from meshctl.meshfile.acls import written_policy
from meshctl.meshfile.plan import SPEC_FIELDS, cluster_difference
from meshctl.output import as_dict, count, moment, print_json, print_table
from meshctl.record_rules import sentence, state
from meshctl.session import Command, Session, pass_session

DEFAULT_HISTORY = 20


@click.command(cls=Command)
@click.argument("topic", required=False)
@click.option("--rule", "rule", metavar="RULE", shell_complete=rule_ids, help="Only what was decided about this rule.")
@click.option("--cluster", metavar="CLUSTER", shell_complete=cluster_names, help="Only about this cluster.")
@click.option("--record-rule", metavar="ID", help="Only about this mirror or content rule.")
@click.option("--schedule", metavar="ID", help="Only about this scheduled change.")
@click.option("--instance", metavar="GROUP.INSTANCE", shell_complete=instance_names, help="Only about this consumer.")
@click.option("--sidecar", metavar="NAME", shell_complete=sidecar_names, help="Only orders to this sidecar.")
@click.option("--pipeline", metavar="NAME", help="Only orders to this pipeline.")
@click.option("--subscription", metavar="NAME", help="Only about this declared subscription of sidecars.")
@click.option("--principal", metavar="P", help="Only about the roles of this person, program or group.")
@click.option("--user", metavar="U", help="Only about this user, who logs in to gateways.")
@click.option("--acls", is_flag=True, help="Only about ACLs of clients.")
@click.option("--quotas", is_flag=True, help="Only about quotas of clients.")
@click.option("--validation", is_flag=True, help="Only about rules of validation.")
@click.option("--tenants", is_flag=True, help="Only about tenants.")
@click.option("--listeners", is_flag=True, help="Only about listeners of gateways.")
@click.option("--protection", is_flag=True, help="Only about rules of protection.")
@click.option("--replay", metavar="REPLAY", shell_complete=replay_ids, help="Only about this replay.")
@click.option(
    "-n",
    "--count",
    "number",
    type=click.IntRange(min=1),
    default=DEFAULT_HISTORY,
    show_default=True,
    help="How many, counted from the newest.",
)
@pass_session
def history(
    session: Session,
    topic: str | None,
    rule: str | None,
    cluster: str | None,
    record_rule: str | None,
    schedule: str | None,
    instance: str | None,
    sidecar: str | None,
    pipeline: str | None,
    subscription: str | None,
    replay: str | None,
    principal: str | None,
    user: str | None,
    acls: bool,
    quotas: bool,
    validation: bool,
    tenants: bool,
    protection: bool,
    listeners: bool,
    number: int,
) -> None:
    """Show the last decisions in words, newest first; with TOPIC those that changed where it lives, and where that was.

    \b
    Examples:
      meshctl history
      meshctl history orders               where the topic lived, and who moved it
      meshctl history --rule orders -n 5
      meshctl history --cluster c2 -o json
      meshctl history --instance billing.one
    """
    named = {
        "rules": rule, "clusters": cluster, "recordrules": record_rule, "schedules": schedule,
        "instances": instance, "members": sidecar, "pipelines": pipeline, "replays": replay,
        "access": principal, "users": user, "subscriptions": subscription,
    }  # fmt: skip
    names = [
        f"{collection}/{name.removeprefix(f'{collection}/')}" for collection, name in named.items() if name is not None
    ]
    policies = (
        ("acls", acls),
        ("quotas", quotas),
        ("validation", validation),
        ("tenants", tenants),
        ("protection", protection),
        ("listeners", listeners),
    )
    names += [name for name, asked in policies if asked]
    given = [*names, *([] if topic is None else [topic])]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)}: ask for one of them")
    request = admin.ListHistoryRequest()
    if names:
        request.name = names[0]
    elif topic is not None:
        request.topic = topic
    found = session.connect().history(request, number)
    if session.as_json:
        print_json({"entries": [as_dict(each) for each in found]})
        return
    about = f" about {given[0]}" if given else ""
    where = ("LIVES ON",) if topic is not None else ()
    print_table(
        ("REVISION", "TIME", "BY", *where, "WHAT", "OUTCOME", "REASON"),
        (
            (
                each.revision, moment(each.time), actor_text(each), *((each.place or "nowhere",) if where else ()),
                "\n".join(each.changes), each.outcome, each.reason,
            )
            for each in found
        ),
        empty=f"Nothing was decided yet{about}.",
    )  # fmt: skip


@click.command(cls=Command)
@click.argument("before", metavar="[A]", type=click.IntRange(min=1), required=False)
@click.argument("after", metavar="[B]", type=click.IntRange(min=1), required=False)
@file_options(required=False)
@pass_session
def diff(
    session: Session,
    /,
    before: int | None,
    after: int | None,
    stream: Any,
    overrides: dict[str, list[str]],
    replace: bool,
    prune: bool,
) -> None:
    """Show what differs: between revisions A and B (now, when B is left out), or between the mesh and a file.

    + is there only after, ~ differs, - was there only before. A difference between revisions
    also lists the topics whose cluster changed.

    \b
    Examples:
      meshctl diff 40 41
      meshctl diff 40                    since then
      meshctl diff -f mesh.yaml          what applying the file would change
      meshctl diff -f mesh.yaml --prune  and what it would remove
    """
    if (before is None) is (stream is None):
        raise click.UsageError("say what to compare: revisions A and B, or -f FILE with the mesh; one of the two")
    if stream is not None:
        plan = plan_of(stream.name, read(stream, overrides), session.connect(), replace=replace, prune=prune)
        if session.as_json:
            print_json({"plan": plan_document(plan), "notices": notices_document(plan)})
        else:
            show_plan(plan)
        return
    connection = session.connect()
    request = admin.DiffRequest(from_revision=before or 0, to_revision=after or 0)
    found = connection.call(connection.decisions.Diff, request)
    then, now = (connection.acl_policy(each) for each in (found.from_revision, found.to_revision))
    gone, new = _acls_without(then, now), _acls_without(now, then)
    if session.as_json:
        acls = {"removed": [as_dict(each) for each in gone], "added": [as_dict(each) for each in new]}
        policies = {"before": written_policy(then), "after": written_policy(now)}
        print_json({**as_dict(found), "acls": acls, "acl_policy": policies})
        return
    lines = [*_clusters(found.clusters), *_rules(found.rules), *_record_rules(found.record_rules)]
    lines += [("+", "acl", each.principal, acl_text(each)) for each in new]
    lines += _acl_policy(written_policy(then), written_policy(now))
    lines += [("-", "acl", each.principal, acl_text(each)) for each in gone]
    show_lines(lines)
    for move in found.moves:
        click.echo(wording.topic_move(move))
    for name in found.unreachable:
        click.echo(f"note: cluster {name} does not say which topics it has; some that live elsewhere may be missing")
    between = f"Revision {found.from_revision} to {found.to_revision}"
    changed = _changed(sign for sign, *_ in lines)
    elsewhere = f"; {count(len(found.moves), 'topic')} elsewhere" if found.moves else ""
    click.echo(f"{between}: {changed}{elsewhere}.")


def _changed(signs: Iterable[str]) -> str:
    """ "1 added, 2 removed"."""
    numbers = Counter(signs)
    words = (("+", "added"), ("~", "changed"), ("-", "removed"))
    return ", ".join(f"{numbers[sign]} {word}" for sign, word in words if numbers[sign]) or "nothing differs"


Line = tuple[str, str, str, str]


def _clusters(found: Iterable[admin.ClusterDifference]) -> Iterator[Line]:
    for each in found:
        before, after = each.before.spec, each.after.spec
        if not each.HasField("before"):
            yield "+", "cluster", after.cluster_name, ", ".join(after.bootstrap_servers)
        elif not each.HasField("after"):
            yield "-", "cluster", before.cluster_name, ", ".join(before.bootstrap_servers)
        else:
            changed = [name for name in SPEC_FIELDS if getattr(before, name) != getattr(after, name)]
            detail = "; ".join(cluster_difference(name, before, after) for name in changed)
            yield "~", "cluster", after.cluster_name, detail or "seen anew"


def _acls_without(policy: acls.AclPolicy, other: acls.AclPolicy) -> list[acls.Acl]:
    known = {each.SerializeToString(deterministic=True) for each in other.acls}
    return [each for each in policy.acls if each.SerializeToString(deterministic=True) not in known]


def _acl_policy(then: dict[str, Any], now: dict[str, Any]) -> Iterator[Line]:
    if then != now:
        was, now_is = (f"mode {each['mode']}; super users {names(each['super_users'])}" for each in (then, now))
        yield "~", "acl", "policy", f"{now_is} (was {was})"


def _rules(found: Iterable[admin.RuleDifference]) -> Iterator[Line]:
    for each in found:
        before, after = each.before, each.after
        if not each.HasField("before"):
            yield "+", "rule", after.spec.rule_id, f"{rule_text(after.spec)} (place {after.place})"
        elif not each.HasField("after"):
            yield "-", "rule", before.spec.rule_id, rule_text(before.spec)
        elif before.spec == after.spec:
            yield "~", "rule", after.spec.rule_id, f"{rule_text(after.spec)} (place {before.place} -> {after.place})"
        else:
            yield "~", "rule", after.spec.rule_id, f"{rule_text(after.spec)} (was {rule_text(before.spec)})"


def _record_rules(found: Iterable[admin.RecordRuleDifference]) -> Iterator[Line]:
    for each in found:
        before, after = each.before, each.after
        if not each.HasField("before"):
            yield "+", "record rule", after.spec.record_rule_id, sentence(after.spec)
        elif not each.HasField("after"):
            yield "-", "record rule", before.spec.record_rule_id, sentence(before.spec)
        else:
            was, now = (f"{sentence(one.spec)}, {state(one)}" for one in (before, after))
            yield "~", "record rule", after.spec.record_rule_id, f"{now} (was {was})" if was != now else now


@click.command(cls=Command)
@click.argument("revision", type=click.IntRange(min=1), required=False)
@click.option("--last", is_flag=True, help="Undo the last change of the rules. Once more, and it is done again.")
@change_options
@pass_session
def revert(session: Session, /, revision: int | None, last: bool, options: admin.ChangeOptions) -> None:
    """Bring back the rules of REVISION, or those before the last change: a new decision, made like any other.

    Rules come back with their ids, order and conditions. Clusters and record rules stay as they are; a rule whose
    cluster has been removed since refuses it.

    \b
    Examples:
      meshctl revert --last --reason 'consumers lag'
      meshctl revert 41 --dry-run
      meshctl revert 41 --create-topics
    """
    if (revision is None) is not last:
        raise click.UsageError("say what to go back to: REVISION, or --last; one of the two")
    request = admin.RevertRequest(options=options)
    if revision is None:
        request.last = True
    else:
        request.revision = revision
    carry_out(session, request)
