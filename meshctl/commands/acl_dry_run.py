"""`--dry-run` of `meshctl acl add|remove|mode`: who would have been refused in the last hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from mesh.acls.codec import policy_from_proto
from mesh.rpc import acls as pb
from mesh.rpc import clients, traffic
from meshctl import acl_clients
from meshctl.acl_clients import broken_by
from meshctl.acl_traffic import MOST, Judged, Refused, Use, document, judge, limits
from meshctl.connection import Connection
from meshctl.moments import Since
from meshctl.output import count, moment, print_json, print_table
from meshctl.session import Session
from meshctl.traffic import freshness

F = TypeVar("F", bound=Callable[..., Any])
LAST: Final = timedelta(hours=24)
MOST_TIMES: Final = 50
"""Refused uses whose last time is asked for, a call each: those with the most calls."""
BY: Final = ("CLIENT", "PRINCIPAL", "TOPIC", "API")


def dry_run_options(command: F) -> F:
    """--dry-run and --since, given to the command as `dry_run` and `since`."""
    for option in (
        click.option(
            "--since", type=Since(), metavar="WHEN", help="With --dry-run: traffic from then on, not of 24 h."
        ),
        click.option("--dry-run", is_flag=True, help="Change nothing; show who would have been refused."),
    ):
        command = option(command)
    return command


def show_dry_run(
    session: Session, since: datetime | None, before: pb.AclPolicy, after: pb.AclPolicy, *, whole: bool
) -> None:
    """Judges the traffic by the policy `after` as if it were enforced. `whole`: shows also who is refused by both."""
    now = datetime.now(UTC)
    start = (since or now - LAST).astimezone(UTC)
    connection = session.connect()
    judged, last, answer = judged_traffic(connection, start, before, after)
    connected = connection.all_clients(clients.ListClientsRequest())
    broken = list(broken_by(connected.clients, policy_from_proto(before), policy_from_proto(after)))
    if session.as_json:
        of_clients = [acl_clients.document(each) for each in broken]
        print_json({"dry_run": document(judged, last) | {"clients": of_clients}, "since": start.isoformat()})
        return
    shown = [each for each in judged.refused if whole or each.was_allowed]
    print_table(
        ("PRINCIPAL", "CLIENT", "OPERATION", "TOPIC", "CALLS", "LAST IN THE HOUR FROM", "BECAUSE"),
        (
            (
                each.use.principal, each.use.client or "-", each.use.operation.word, each.use.topic,
                f"{each.use.calls:,}", last.get(each.use, "-"), each.reason,
            )
            for each in shown
        ),
        empty="No client would have been refused, as far as traffic tells." if whole
        else "No client would have lost a right that it used, as far as traffic tells.",
    )  # fmt: skip
    _tell(judged, answer, len(shown), now, start)
    click.echo("\nClients that are connected now, with groups, transactional ids and addresses:")
    lost = [each for each in broken if whole or each.was_allowed]
    print_table(acl_clients.COLUMNS, map(acl_clients.row, lost), empty="None would be refused what it does.")
    left_out = sum(each.kinds for each in connected.left_out)
    for sentence in acl_clients.limits(addresses_hidden=connected.addresses_hidden, left_out=left_out):
        click.echo(f"note: {sentence}")


def judged_traffic(
    connection: Connection, start: datetime, before: pb.AclPolicy, after: pb.AclPolicy
) -> tuple[Judged, dict[Use, str], traffic.TopTalkersResponse]:
    """The traffic since `start`, judged by the policy `after`; the hours of the last calls; and control's answer."""
    answer = _asked(connection, start)
    judged = judge(answer, policy_from_proto(before), policy_from_proto(after))
    return judged, _last_times(connection, start, judged.refused), answer


def _asked(connection: Connection, start: datetime) -> traffic.TopTalkersResponse:
    request = traffic.TopTalkersRequest(
        by=[traffic.TrafficDimension.Value(f"TRAFFIC_DIMENSION_{each}") for each in BY],
        measure=traffic.TRAFFIC_MEASURE_CALLS,
        limit=MOST,
    )
    request.start_time.FromDatetime(start)
    return connection.call(connection.traffic.TopTalkers, request)


def _last_times(connection: Connection, start: datetime, refused: Iterable[Refused]) -> dict[Use, str]:
    """The hour of the last call of each use; traffic that is minutes old may be missing in it."""
    found: dict[Use, str] = {}
    for each in sorted(refused, key=lambda one: -one.use.calls)[:MOST_TIMES]:
        use = each.use
        who = traffic.TrafficFilter(client=use.client, principal=use.shown, topic=use.topic, api=use.api)
        request = traffic.QueryTrafficRequest(filter=who)
        request.start_time.FromDatetime(start)
        request.step.FromTimedelta(timedelta(hours=1))
        points = connection.call(connection.traffic.QueryTraffic, request).points
        times = [point.start_time for point in points if point.figures.calls]
        if times:
            found[use] = moment(times[-1])
    return found


def _tell(judged: Judged, answer: traffic.TopTalkersResponse, shown: int, now: datetime, start: datetime) -> None:
    both = len(judged.refused) - shown
    stays = f"; the policy as it is would refuse {both} more" if both else ""
    calls = f"{count(judged.judged_calls, 'call')} since {start:%Y-%m-%d %H:%M} UTC"
    click.echo(f"Judged as if the mode were enforce: {calls}{stays}. Nothing was changed.")
    for sentence in limits(judged):
        click.echo(f"note: {sentence}")
    if sentence := freshness(answer.freshness, now):
        click.echo(f"note: {sentence}")


def with_acls(policy: pb.AclPolicy, added: Iterable[pb.Acl]) -> pb.AclPolicy:
    return pb.AclPolicy(
        mode=policy.mode, acls=[*policy.acls, *added], super_users=policy.super_users, revision=policy.revision
    )


def without_acls(policy: pb.AclPolicy, removed: Iterable[pb.Acl]) -> pb.AclPolicy:
    gone = {each.SerializeToString(deterministic=True) for each in removed}
    left = [each for each in policy.acls if each.SerializeToString(deterministic=True) not in gone]
    return pb.AclPolicy(mode=policy.mode, acls=left, super_users=policy.super_users, revision=policy.revision)
