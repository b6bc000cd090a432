"""`meshctl explain`, `status` and `watch`: why things are as they are."""

from __future__ import annotations

from collections.abc import Iterator

import click

from mesh.rpc import admin, events
from mesh.wording import actor_text, decision_text, match_text, short
from meshctl import wording
from meshctl.commands.cluster import print_clusters
from meshctl.commands.instances import print_instances
from meshctl.commands.record_rule_life import print_record_rules
from meshctl.connection import Connection
from meshctl.output import age, count, length_of, moment, print_json, print_table
from meshctl.reopening import reopened
from meshctl.session import Command, Session, pass_session


@click.command(cls=Command)
@click.argument("topic", required=False)
@click.option("--group", metavar="G", help="A consumer, share or streams group instead of a topic.")
@click.option("--transactional-id", metavar="T", help="A transactional id.")
@click.option("--client-software", metavar="NAME/VERSION", help="A client library, like librdkafka/2.10.0.")
@click.option("--as-client-id", default="", metavar="ID", help="As a client of this client.id sees it.")
@click.option("--as-software", default="", metavar="NAME", help="As a client of this software sees it: librdkafka.")
@click.option("--as-principal", default="", metavar="P", help="As this principal sees it: User:alice.")
@click.option("--as-from", default="", metavar="ADDRESS", help="As a client sees it that connects from there.")
@pass_session
def explain(
    session: Session, /, as_client_id: str, as_software: str, as_principal: str, as_from: str, **about: str | None
) -> None:
    """Say where TOPIC lives and why: the rule that decides and each rule tried before it.

    Or: who coordinates a group or a transactional id, and which nodes a client is shown. Rules about some clients do
    not match unless the client is said.

    \b
    Examples:
      meshctl explain apples
      meshctl explain apples --as-client-id shop-1 --as-from 10.1.2.3
      meshctl explain --group billing
    """
    client = admin.ClientIdentity(
        principal=as_principal, client_id=as_client_id, software_name=as_software, address=as_from
    )
    given = {field: text for field, text in about.items() if text is not None}
    if len(given) != 1:
        raise click.UsageError(
            "say what to explain: TOPIC, --group G, --transactional-id T or --client-software NAME/VERSION; one of them"
        )
    connection = session.connect()
    request = admin.ExplainRequest(client=client)
    for field, text in given.items():
        setattr(request, field, text)
    answer = connection.call(connection.decisions.Explain, request)
    if session.as_json:
        print_json(answer)
        return
    ((field, name),) = given.items()
    click.echo(wording.explanation(field, name, answer))
    print_table(
        ("", "RULE", "MATCH", "CLUSTER", "WHY"),
        (
            (
                "->" if tried.matched else "", short(tried.rule.name), match_text(tried.rule.spec.match),
                decision_text(tried.rule.spec), tried.reason,
            )
            for tried in answer.tried
        ),
        empty="No rule was tried.",
    )  # fmt: skip
    decisive = next((tried.rule for tried in answer.tried if tried.matched), None)
    if decisive is not None:
        since = f"revision {decisive.revision}, {moment(decisive.update_time)}, by {decisive.actor}"
        click.echo(f"{short(decisive.name)} says so since {since}")
    if answer.live_partitions:
        print_table(
            ("PARTITION", "LEADER", "FIRST OFFSET", "NEXT OFFSET"),
            ((each.partition, *map(_known, (each.leader, each.start, each.end))) for each in answer.live_partitions),
            empty="",
        )
    for note in answer.notes:
        click.echo(f"note: {note}")


def _known(number: int) -> str:
    """ "-" for -1: a partition without a leader."""
    return "-" if number < 0 else str(number)


@click.command(cls=Command)
@pass_session
def status(session: Session) -> None:
    """Show the revision in force, the members with what each of them runs, and the clusters."""
    found = session.connect().status()
    if session.as_json:
        print_json(found)
        return
    pending = f"; revision {found.pending_revision} is being rolled out" if found.pending_revision else ""
    behind = found.last_position - found.published_position
    carried = f"; {count(behind, 'event')} not yet on mesh.events" if behind > 0 else ""
    click.echo(f"revision {found.revision}{pending}; log at {found.last_position}{carried}")
    for problem in found.problems:
        click.echo(f"problem: {problem}")
    if found.HasField("frozen"):
        why = found.frozen
        click.echo(f"frozen: {why.actor} refuses changes since {moment(why.time)} ({why.reason}); see meshctl thaw")
    if found.scheduled_changes:
        click.echo(f"{count(found.scheduled_changes, 'change')} scheduled: meshctl schedule list")
    click.echo()
    print_table(
        ("MEMBER", "KIND", "ADDRESS", "RUNS", "STATE", "LAG", "CLIENTS", "SEEN", "NOTE"),
        (
            (
                short(each.name), wording.member_kind(each.kind), each.address, each.revision or "-",
                wording.member_state(each), length_of(each.lag), each.client_count,
                age(each.last_seen_time), wording.member_note(each),
            )
            for each in found.members
        ),
        empty="No router, gateway or sidecar is connected.",
    )  # fmt: skip
    click.echo()
    print_clusters(found.clusters)
    if found.record_rules:
        click.echo()
        print_record_rules(found.record_rules)
    if found.instances:
        click.echo()
        print_instances(found.instances)


@click.command(cls=Command)
@click.option(
    "--from",
    "from_position",
    type=click.IntRange(min=1),
    metavar="POSITION",
    help="Begin with this event of the log; with the next one otherwise.",
)
@click.option("-n", "--count", "number", type=click.IntRange(min=1), help="Stop after this many events.")
@pass_session
def watch(session: Session, from_position: int | None, number: int | None) -> None:
    """Show decisions as they are taken, until Ctrl-C. With -o json one event a line.

    When control goes away, watch waits for it and goes on where it was: no event is missed.
    """
    connection = session.connect()
    following = (
        connection.status().last_position + 1
    )  # asked first: a control that is not there at the start is an error
    try:
        for shown, event in enumerate(_events(connection, from_position or following), start=1):
            if session.as_json:
                print_json(event, one_line=True)
            else:
                reason = f" ({event.reason})" if event.reason else ""
                click.echo(
                    f"{event.position}  {moment(event.time)}  {actor_text(event)}  {wording.event(event)}{reason}"
                )
            if shown == number:
                return
    except KeyboardInterrupt:
        return


def _events(connection: Connection, position: int) -> Iterator[events.Event]:
    """Events from `position` on, without end: the stream is opened again when it ends, where it ended."""

    def opened() -> Iterator[events.Event]:
        return connection.watch(position)

    for event in reopened(opened, is_there=True):
        position = event.position + 1
        yield event
