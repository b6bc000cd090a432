"""`meshctl cluster standby` and `fail-over`: another cluster has copies, and takes the place of a dead one."""

from __future__ import annotations

import uuid

import click
from google.protobuf.duration_pb2 import Duration as ProtoDuration

from mesh import durations
from mesh.rpc import standbys as standbys_pb
from mesh.wording import word
from meshctl.commands.cluster_rehearse import Duration
from meshctl.completions import cluster_names
from meshctl.output import moment, print_json, print_table
from meshctl.session import Command, NameFirst, Session, pass_session

MEGABYTE = 1_000_000
FAIL_OVER_SECONDS = 60.0
"""The least time-out of a fail-over: control asks a dead cluster first, and fences each copy."""
COLUMNS = ("STANDBY", "ON", "STATE", "TOPICS", "LAG", "SINCE", "FAILED OVER", "BY", "NOTE")
TOPIC_COLUMNS = ("TOPIC", "COPY", "LAG", "BEHIND", "NOTE")
NOTHING_LACKS = "No copy lacks a record that a router has seen the end of."
NOTHING_LOST = "No acknowledged record is lost."
LOSS_COLUMNS = ("TOPIC", "PARTITION", "LOST", "COUNT", "FROM", "END")


@click.group("standby", cls=NameFirst)
def standby() -> None:
    """Keep copies of the topics of a cluster on another one, which takes its place when it is dead.

    \b
    Examples:
      meshctl cluster standby c1 --on c2
      meshctl cluster standby show c1
      meshctl cluster standby c1 --off
      meshctl cluster fail-over c1 --to c2 --dry-run
    """


@standby.command()
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@click.option("--on", "target", metavar="CLUSTER", shell_complete=cluster_names, help="The cluster for the copies.")
@click.option("--topics", default="", metavar="GLOB", help="Only topics that match this pattern of * and ?.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="MB/S", help="Megabytes a second of one copy."
)
@click.option(
    "--fail-over-after",
    type=Duration(),
    metavar="TIME",
    help="Fail over without an operator when most gateways have not reached CLUSTER for so long; 30s. Not by default.",
)
@click.option(
    "--max-loss", type=click.IntRange(min=0), metavar="RECORDS", help="Not while the copies lack more than that."
)
@click.option("--max-lag", type=Duration(), metavar="TIME", help="Not while a copy was further behind than that; 10s.")
@click.option("--off", is_flag=True, help="End the standby; its copies stay.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def start(
    session: Session,
    cluster: str,
    target: str | None,
    topics: str,
    rate: float | None,
    fail_over_after: int | None,
    max_loss: int | None,
    max_lag: int | None,
    off: bool,
    reason: str,
) -> None:
    """Keep copies of the topics of CLUSTER, also of topics that come later.

    \b
    Examples:
      meshctl cluster standby c1 --on c2 --topics 'shop.*'
      meshctl cluster standby c1 --on c2 --fail-over-after 30s --max-loss 1000
      meshctl cluster standby c1 --off
    """
    if off == bool(target):
        raise click.UsageError("name the cluster for the copies with --on, or end the standby with --off")
    connection = session.connect()
    if off:
        ending = standbys_pb.EndStandbyRequest(name=_name(cluster), reason=reason, request_id=str(uuid.uuid4()))
        found = connection.call(connection.standbys.EndStandby, ending)
        if not session.as_json:
            click.echo(f"the standby of {cluster} has ended; the copies stay on {found.spec.target_cluster}")
            return
    else:
        spec = standbys_pb.StandbySpec(
            source_cluster=cluster,
            target_cluster=target or "",
            topics=topics,
            bytes_per_second=round((rate or 0) * MEGABYTE),
            fail_over_after=None if fail_over_after is None else ProtoDuration(seconds=fail_over_after),
            max_lost_records=max_loss,
            max_lag=None if max_lag is None else ProtoDuration(seconds=max_lag),
        )
        starting = standbys_pb.StartStandbyRequest(spec=spec, reason=reason, request_id=str(uuid.uuid4()))
        found = connection.call(connection.standbys.StartStandby, starting)
    _show(session, found)


@standby.command()
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@pass_session
def show(session: Session, cluster: str) -> None:
    """Show a standby: how far each copy is behind, and the records that a fail-over would lose now.

    \b
    Example:
      meshctl cluster standby show c1
    """
    connection = session.connect()
    _show(session, connection.call(connection.standbys.GetStandby, standbys_pb.GetStandbyRequest(name=_name(cluster))))


@click.command("fail-over", cls=Command)
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@click.option("--to", "target", required=True, metavar="CLUSTER", help="The cluster that has the copies.")
@click.option("--dry-run", is_flag=True, help="Show the records that would be lost, and change nothing.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def fail_over(session: Session, cluster: str, target: str, dry_run: bool, reason: str) -> None:
    """Lead the topics of CLUSTER, which is dead, to their copies. Refused while the cluster answers.

    \b
    Examples:
      meshctl cluster fail-over c1 --to c2 --dry-run
      meshctl cluster fail-over c1 --to c2 --reason 'the hall is on fire'
    """
    connection = session.connect()
    request = standbys_pb.FailOverRequest(
        name=_name(cluster),
        target_cluster=target,
        validate_only=dry_run,
        reason=reason,
        request_id="" if dry_run else str(uuid.uuid4()),
    )
    _show(session, connection.call(connection.standbys.FailOver, request, at_least=FAIL_OVER_SECONDS))
    if dry_run and not session.as_json:
        click.echo("checked only, nothing was changed")


def _show(session: Session, found: standbys_pb.Standby) -> None:
    if session.as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(found)], empty="")
    if found.spec.HasField("fail_over_after"):
        click.echo(_policy(found.spec))
    if found.acls or found.acl_problem:
        click.echo("; ".join(filter(None, (f"{len(found.acls)} ACLs are kept", found.acl_problem))))
    if found.topics:
        click.echo()
        print_table(TOPIC_COLUMNS, map(_topic_row, found.topics), empty="")
    losses = [_loss_row(topic.topic, each) for topic in found.topics for each in topic.partitions if _lost(each)]
    click.echo()
    has_failed_over = any(each.loss_count for topic in found.topics for each in topic.partitions)
    print_table(LOSS_COLUMNS, losses, empty=NOTHING_LOST if has_failed_over else NOTHING_LACKS)
    for gateway in found.silent_gateways:
        click.echo(f"the loss may be larger: gateway {gateway} did not report the last records it acknowledged")


def _row(of: standbys_pb.Standby) -> tuple[object, ...]:
    copied = [each for each in of.topics if not each.left]
    return (
        of.spec.source_cluster, of.spec.target_cluster, word(standbys_pb.StandbyState, of.state), len(copied),
        sum(each.lag_records for each in copied), moment(of.create_time),
        moment(of.fail_over_time) if of.HasField("fail_over_time") else "-", of.actor, of.problem,
    )  # fmt: skip


def _policy(of: standbys_pb.StandbySpec) -> str:
    bounds = [f"at most {of.max_lost_records} records"] if of.HasField("max_lost_records") else []
    bounds += [f"a lag of at most {of.max_lag.seconds} s"] if of.HasField("max_lag") else []
    within = f", within {' and '.join(bounds)}" if bounds else ""
    return f"control fails over by itself after {of.fail_over_after.seconds} s{within}"


def _topic_row(of: standbys_pb.StandbyTopic) -> tuple[object, ...]:
    behind = f"{durations.in_s(of.lag):.1f} s" if of.HasField("lag") else "-"
    return of.topic, "none" if of.left else of.copy.target_topic, of.lag_records, behind, of.problem


def _lost(of: standbys_pb.StandbyPartition) -> int:
    return of.lost_records if of.loss_count else max(0, of.end - of.position)


def _loss_row(topic: str, of: standbys_pb.StandbyPartition) -> tuple[object, ...]:
    count = word(standbys_pb.LossCount, of.loss_count) if of.loss_count else "as far as seen"
    return topic, of.partition, _lost(of), count, of.position, of.acknowledged_end if of.loss_count else of.end


def _name(cluster: str) -> str:
    return f"standbys/{cluster}"
