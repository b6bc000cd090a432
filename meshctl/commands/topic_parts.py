"""`meshctl topic parts`: where the log of a topic is, and when its old clusters may be switched off."""

from __future__ import annotations

from collections.abc import Iterator

import click

from mesh.rpc import topics as pb
from meshctl.output import print_json, print_table
from meshctl.session import Command, Session, pass_session

COLUMNS = ("CLUSTER", "TOPIC THERE", "PARTITION", "FROM", "UP TO", "BYTES", "NEEDS ITS CLUSTER")
NOT_KNOWN = "-"


@click.command(cls=Command)
@click.argument("topic", metavar="TOPIC")
@pass_session
def parts(session: Session, topic: str) -> None:
    """Show the parts of the log of TOPIC: after moves with --stitch they are on several clusters.

    Offsets are those that clients see. An old cluster may be switched off when nothing of the part is left there.

    \b
    Example:
      meshctl topic parts apples
    """
    connection = session.connect()
    found = connection.call(connection.topics.GetTopicParts, pb.GetTopicPartsRequest(name=f"topics/{topic}"))
    if session.as_json:
        print_json(found)
        return
    print_table(COLUMNS, (row for part in found.parts for row in _rows(part)), empty="")
    for problem in found.problems:
        click.echo(problem, err=True)


def _rows(of: pb.TopicPart) -> Iterator[tuple[object, ...]]:
    """A row for each partition; the first has what is true of all."""
    size = str(of.size_bytes) if of.HasField("size_bytes") else NOT_KNOWN
    about = (of.cluster, of.upstream_topic), (size, of.expiry or NOT_KNOWN)
    for each in of.partitions:
        yield *about[0], each.partition, each.start, each.end, *about[1]
        about = ("", ""), ("", "")
    if not of.partitions:
        yield *about[0], NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, *about[1]
