"""`meshctl cluster fail-back`: a cluster that has failed over gets its topics back, with all their records."""

from __future__ import annotations

import uuid
from typing import Any

import click

from mesh.rpc import fail_backs as fail_backs_pb
from mesh.wording import short, word
from meshctl.commands.cluster_drain import LOOK_SECONDS, PLAN_SECONDS, bounds, spec_of
from meshctl.completions import cluster_names
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.following import followed
from meshctl.output import moment, print_json, print_table
from meshctl.session import NameFirst, Session, pass_session

ENDS = (fail_backs_pb.FAIL_BACK_STATE_DONE, fail_backs_pb.FAIL_BACK_STATE_CANCELLED)
STRAYS = {"topic": fail_backs_pb.STRAY_POLICY_TOPIC, "append": fail_backs_pb.STRAY_POLICY_APPEND}
COLUMNS = ("CLUSTER", "FROM", "STATE", "STRAYS TO", "DRAIN", "STARTED", "BY", "NOTE")
TOPIC_COLUMNS = ("TOPIC", "STATE", "WAY", "STRAYS", "IN", "SENT AGAIN", "NOTE")
PLAN_COLUMNS = ("TOPIC", "WAY", "OFFSETS BEHIND THE COPY", "NOTE")


@click.group("fail-back", cls=NameFirst)
def fail_back() -> None:
    """Lead the topics of a cluster back that has failed over, and has come back.

    \b
    Examples:
      meshctl cluster fail-back c1 --dry-run
      meshctl cluster fail-back c1 --strays topic --rate 40 --wait
      meshctl cluster fail-back show c1
      meshctl cluster fail-back cancel c1
    """


@fail_back.command()
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@click.option(
    "--strays",
    type=click.Choice(list(STRAYS)),
    default="topic",
    help="The place for records that only CLUSTER has: a topic of their own, or behind the records of their topic.",
)
@bounds("Megabytes a second of all copies, and of strays.", "Go on although this gateway does not answer")
@click.option("--dry-run", is_flag=True, help="Show for each topic how it would come back, and change nothing.")
@click.option("--wait", is_flag=True, help="Until the fail-back has ended.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def start(
    session: Session,
    /,
    cluster: str,
    strays: str,
    dry_run: bool,
    wait: bool,
    reason: str,
    **bounds_of_moves: Any,
) -> None:
    """Lead the topics of CLUSTER back, with all their records.

    The exit code of --wait is 0 if each topic is back.

    \b
    Examples:
      meshctl cluster fail-back c1 --dry-run
      meshctl cluster fail-back c1 --strays append --rate 20 --wait
    """
    spec = fail_backs_pb.FailBackSpec(cluster=cluster, strays=STRAYS[strays], moves=spec_of(**bounds_of_moves))
    connection = session.connect()
    request = fail_backs_pb.StartFailBackRequest(
        spec=spec, validate_only=dry_run, reason=reason, request_id="" if dry_run else str(uuid.uuid4())
    )
    found = connection.call(connection.fail_backs.StartFailBack, request, at_least=PLAN_SECONDS)
    if dry_run:
        _show_plan(session, found)
        return
    changes = followed(found, lambda: _get(connection, cluster), lambda of: of.state in ENDS, LOOK_SECONDS)
    for change in changes if wait else ():
        found = change
        if not session.as_json:
            click.echo(_progress(found), err=True)
    _show(session, found)
    stay = sum(each.state != fail_backs_pb.FAIL_BACK_TOPIC_STATE_MOVED for each in found.topics)
    if wait and stay:
        text = f"{stay} topics stay on {found.clients_cluster}"
        raise MeshctlError(text, ExitCode.REFUSED, status="TOPICS_LEFT")


@fail_back.command()
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@pass_session
def show(session: Session, cluster: str) -> None:
    """Show the last fail-back of a cluster: each topic, its strays, and their place.

    \b
    Example:
      meshctl cluster fail-back show c1
    """
    _show(session, _get(session.connect(), cluster))


@fail_back.command()
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def cancel(session: Session, cluster: str, reason: str) -> None:
    """End a fail-back before its first cut. Strays that are in their place stay there.

    \b
    Example:
      meshctl cluster fail-back cancel c1
    """
    connection = session.connect()
    request = fail_backs_pb.CancelFailBackRequest(name=_name(cluster), reason=reason, request_id=str(uuid.uuid4()))
    _show(session, connection.call(connection.fail_backs.CancelFailBack, request))


def _get(connection: Connection, cluster: str) -> fail_backs_pb.FailBack:
    return connection.call(connection.fail_backs.GetFailBack, fail_backs_pb.GetFailBackRequest(name=_name(cluster)))


def _name(cluster: str) -> str:
    return f"failbacks/{cluster}"


def _show(session: Session, found: fail_backs_pb.FailBack) -> None:
    if session.as_json:
        print_json(found)
        return
    row = (
        found.spec.cluster, found.clients_cluster, word(fail_backs_pb.FailBackState, found.state),
        word(fail_backs_pb.StrayPolicy, found.spec.strays), short(found.drain) or "-", moment(found.create_time),
        found.actor, found.problem,
    )  # fmt: skip
    print_table(COLUMNS, [row], empty="")
    click.echo()
    print_table(TOPIC_COLUMNS, map(_topic_row, found.topics), empty="")


def _topic_row(of: fail_backs_pb.FailBackTopic) -> tuple[object, ...]:
    strays = sum(each.strays for each in of.partitions)
    return (
        of.topic, word(fail_backs_pb.FailBackTopicState, of.state), word(fail_backs_pb.FailBackWay, of.way), strays,
        of.strays_topic if strays else "-", sum(each.resent for each in of.partitions), of.problem,
    )  # fmt: skip


def _show_plan(session: Session, found: fail_backs_pb.FailBack) -> None:
    if session.as_json:
        print_json(found)
        return
    rows = (
        (
            each.topic, word(fail_backs_pb.FailBackWay, each.way),
            sum(max(0, partition.end - partition.start) for partition in each.partitions), each.problem,
        )
        for each in found.topics
    )  # fmt: skip
    print_table(PLAN_COLUMNS, rows, empty="")
    if found.problem:
        click.echo(found.problem)
    click.echo("checked only, nothing was changed")


def _progress(of: fail_backs_pb.FailBack) -> str:
    back = sum(each.state == fail_backs_pb.FAIL_BACK_TOPIC_STATE_MOVED for each in of.topics)
    strays = sum(partition.strays for each in of.topics for partition in each.partitions)
    text = f"{word(fail_backs_pb.FailBackState, of.state)}: {back} of {len(of.topics)} topics are back, {strays} strays"
    return f"{text}; {of.problem}" if of.problem else text
