"""`meshctl topic`: what records are like, moves of topics with their records, and owners."""

from __future__ import annotations

import click

from mesh.rpc import profiles as profiles_pb
from mesh.rpc import replays as replays_pb
from meshctl import profiles, replays
from meshctl.commands.replay_starting import start
from meshctl.commands.replay_watching import follow
from meshctl.commands.topic_fork import fork, forks
from meshctl.commands.topic_move import move
from meshctl.commands.topic_owner import own
from meshctl.commands.topic_parts import parts
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import print_json, print_table
from meshctl.replay_progress import ENDS
from meshctl.session import Group, Session, pass_session

USUAL_SAMPLE = 10_000
"""Records of each partition; a few seconds."""


@click.group(cls=Group)
def topic() -> None:
    """Topics: what is in them, where they go, and who owns them.

    \b
    Examples:
      meshctl topic profile orders
      meshctl topic profile orders --last
      meshctl topic move apples --to c2
      meshctl topic parts apples
      meshctl topic fork apples --as apples-staging --at latest --to c2
      meshctl topic own apples --owner team-x
    """


topic.add_command(fork)
topic.add_command(forks)
topic.add_command(move)
topic.add_command(own)
topic.add_command(parts)


@topic.command()
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N",
    help=f"The last N records of each partition; {USUAL_SAMPLE} by default.",
)  # fmt: skip
@click.option("--whole", is_flag=True, help="All records.")
@click.option("--last", is_flag=True, help="Only show what is known; nothing is read.")
@click.option("--pipeline", default="", metavar="NAME", help="Who; any pipeline otherwise.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def profile(
    session: Session, topic: str, sample: int | None, whole: bool, last: bool, pipeline: str, reason: str
) -> None:
    """Profile the records of TOPIC: sizes, keys, missing values, formats, fields. Profiles hold names and numbers only.

    A pipeline reads them; control keeps the last profile of each topic, and dry runs of rules warn by it.

    \b
    Examples:
      meshctl topic profile orders
      meshctl topic profile orders --sample 1000
      meshctl topic profile orders --whole
      meshctl topic profile orders --last -o json
    """
    if [sample is not None, whole, last].count(True) > 1:
        raise click.UsageError("--sample, --whole and --last exclude each other")
    connection = session.connect()
    if not last:
        of_each = 0 if whole else sample or USUAL_SAMPLE
        _look(session, topic, replays_pb.ReplayToProfile(pipeline=pipeline, sample=of_each), reason)
    found = _known(connection, topic)
    if session.as_json:
        print_json(found)
        return
    for line in profiles.report(found):
        click.echo(line)
    if found.fields:
        click.echo()
        print_table(profiles.FIELDS, profiles.fields(found), empty="")


def _look(session: Session, topic: str, wanted: replays_pb.ReplayToProfile, reason: str) -> None:
    """Orders a profile, and waits for it."""
    spec = replays_pb.ReplaySpec(ranges=[replays_pb.ReplayRange(topic=topic)], profile=wanted)
    made = start(session, spec, reason)
    last = made if made.state in ENDS else follow(session, made.name)
    name = replays.short(made.name)
    if last is None:
        raise MeshctlError(f"it goes on: `meshctl replay watch {name}` follows it", ExitCode.REFUSED, status="OPEN")
    if last.state != replays_pb.REPLAY_STATE_DONE:
        text = f"no profile: replay {name} {replays.state(last)}: {last.description}"
        raise MeshctlError(text, ExitCode.REFUSED, status=replays.state(last).upper())


def _known(connection: Connection, topic: str) -> profiles_pb.TopicProfile:
    request = profiles_pb.GetTopicProfileRequest(name=f"topics/{topic}")
    return connection.call(connection.profiles.GetTopicProfile, request)
