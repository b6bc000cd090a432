"""`meshctl topic move`: a topic moves to another cluster with its records, offsets and groups."""

from __future__ import annotations

import uuid
from pathlib import Path

import click
from google.protobuf import json_format
from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import move_certificates as certificates_pb
from mesh.rpc import topic_moves as moves_pb
from mesh.wording import origin_of, word
from meshctl.completions import member_names
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.following import followed
from meshctl.output import as_dict, length_of, moment, print_json, print_table
from meshctl.session import NameFirst, Session, pass_session

STITCH = moves_pb.TOPIC_MOVE_KIND_STITCH
ANY = moves_pb.TOPIC_MOVE_KIND_UNSPECIFIED
"""Control chooses: stitch, then copy, if the topic fits."""
ENDS = (moves_pb.TOPIC_MOVE_STATE_DONE, moves_pb.TOPIC_MOVE_STATE_CANCELLED, moves_pb.TOPIC_MOVE_STATE_FAILED)
LOOK_SECONDS = 0.5
VERIFY_SECONDS = 600.0
"""The least time-out of a verification: control reads both logs, some ten megabytes in a second."""
MAP = ("PARTITION", "FROM", "OLD END", "NEW BEGIN", "CLIENTS SEE")
EVIDENCE = ("PARTITION", "FROM", "CUT AT", "RECORDS BEFORE", "CRC", "RECORDS AFTER", "CRC")
COLUMNS = ("MOVE", "TOPIC", "FROM", "TO", "STATE", "BEHIND", "PAUSE", "STARTED", "BY", "NOTE")


@click.group("move", cls=NameFirst)
def move() -> None:
    """Move a topic to another cluster with its records: offsets, groups and clients go on as they are.

    Gateways hold the topic for a moment, and new records go to the new cluster. Clients see one log over both clusters,
    until a router has copied it. Then gateways hold once more, and the new cluster has the topic whole.

    With --copy, a router copies first, and clients go to the new cluster when it has all records. A topic that can't be
    read over both clusters moves like that by itself. With --stitch nothing is copied: old records stay where they are.

    \b
    Examples:
      meshctl topic move apples --to c2
      meshctl topic move apples --to c2 --copy
      meshctl topic move apples --to c2 --stitch
      meshctl topic move list
      meshctl topic move show 3f9a01bc
      meshctl topic move cancel 3f9a01bc
      meshctl topic move verify 3f9a01bc
      meshctl topic move certificate 3f9a01bc --out apples.certificate
      meshctl topic move undo 3f9a01bc
    """


@move.command()
@click.argument("topic", metavar="TOPIC")
@click.option("--to", "target", required=True, metavar="CLUSTER", help="The cluster to move to.")
@click.option(
    "--rate", type=click.IntRange(min=1), metavar="BYTES", help="Bytes that the copy moves in a second, at most."
)
@click.option("--budget", type=click.IntRange(min=1), metavar="MS", help="Milliseconds that producers may wait; 1000.")
@click.option(
    "--without",
    multiple=True,
    metavar="MEMBER",
    shell_complete=member_names,
    help="Cut although this gateway does not answer, because its process has ended; again for each of several.",
)
@click.option("--copy", "copy_first", is_flag=True, help="Copy first, then cut once.")
@click.option("--stitch", is_flag=True, help="Copy nothing: old records stay where they are, and clients see one log.")
@click.option("--delete-old", is_flag=True, help="Delete the old topic, too, when nobody needs it any more.")
@click.option("--wait", is_flag=True, help="Until the move has ended.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def start(
    session: Session,
    topic: str,
    target: str,
    *,
    copy_first: bool,
    stitch: bool,
    delete_old: bool,
    rate: int | None,
    budget: int | None,
    without: tuple[str, ...],
    wait: bool,
    reason: str,
) -> None:
    """Move TOPIC to a cluster.

    \b
    Examples:
      meshctl topic move apples --to c2 --wait
      meshctl topic move apples --to c2 --rate 10000000 --budget 500
      meshctl topic move apples --to c2 --stitch
    """
    if stitch and rate:
        raise click.UsageError("--rate bounds a copy, and --stitch copies nothing")
    if stitch and copy_first:
        raise click.UsageError("--copy and --stitch exclude each other; without both, the log is stitched, then copied")
    if delete_old and (stitch or copy_first):
        raise click.UsageError("--delete-old is for a move that stitches and copies: leave --copy and --stitch out")
    spec = moves_pb.TopicMoveSpec(
        kind=STITCH if stitch else moves_pb.TOPIC_MOVE_KIND_COPY if copy_first else ANY,
        delete_old=delete_old,
        topic=topic,
        target_cluster=target,
        bytes_per_second=rate or 0,
        hold_budget=durations.of_ms(budget or 0),
        without_members=without,
    )
    _start(session, spec, reason, wait=wait)


@move.command("list")
@pass_session
def list_moves(session: Session) -> None:
    """Show the open moves and the last ended ones, the newest first.

    \b
    Example:
      meshctl topic move list
    """
    connection = session.connect()
    pages = connection.pages(connection.topic_moves.ListTopicMoves, moves_pb.ListTopicMovesRequest())
    found = [each for page in pages for each in page.topic_moves]
    if session.as_json:
        print_json({"topic_moves": [as_dict(each) for each in found]})
        return
    print_table(COLUMNS, map(_row, found), empty="No topic moves, or has moved, with its records.")


@move.command()
@click.argument("move_id", metavar="ID")
@pass_session
def show(session: Session, move_id: str) -> None:
    """Show one move: how far it is, and where it cut.

    \b
    Example:
      meshctl topic move show 3f9a01bc
    """
    found = _get(session.connect(), move_id)
    if session.as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(found)], empty="")
    _tell_course(found)
    if found.HasField("certificate"):
        click.echo()
        _tell_certificate(found.certificate)
    elif found.cuts and found.spec.kind == STITCH:
        click.echo()
        print_table(MAP, map(_map_row, found.cuts), empty="")
    elif found.cuts:
        click.echo()
        rows = ((each.partition, each.start, each.end) for each in found.cuts)
        print_table(("PARTITION", "FIRST OFFSET", "CUT AT"), rows, empty="")
    for cut in found.cuts:
        if cut.producers_left_out:
            click.echo(
                f"partition {cut.partition} had {cut.producers} producers at the cut; gateways do not know the "
                f"{cut.producers_left_out} that wrote longest ago, whose repeated batches would be stored again"
            )
    for stray in found.strays:
        click.echo(
            f"somebody writes to the old log: {found.copy.source_cluster} alone has offsets {stray.start} to "
            f"{stray.end - 1} of partition {stray.partition}"
        )


@move.command()
@click.argument("move_id", metavar="ID")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Standard output, if unset."
)
@pass_session
def certificate(session: Session, move_id: str, out: Path | None) -> None:
    """Write the certificate of a move to a file that control signs.

    \b
    Examples:
      meshctl topic move certificate 3f9a01bc --out apples.certificate
      meshctl topic move verify apples.certificate
    """
    connection = session.connect()
    request = certificates_pb.SignTopicMoveRequest(name=_name(move_id))
    signed = json_format.MessageToJson(connection.call(connection.move_certificates.SignTopicMove, request))
    if out is None:
        click.echo(signed)
        return
    try:
        out.write_text(f"{signed}\n", encoding="utf-8")
    except OSError as error:
        raise MeshctlError(f"{out} can't be written: {error.strerror or error}", ExitCode.BAD_REQUEST) from error


@move.command()
@click.argument("move_id", metavar="ID|FILE")
@pass_session
def verify(session: Session, move_id: str) -> None:
    """Read the logs of a move from both clusters again, up to the cut, and compare them.

    A FILE of `meshctl topic move certificate` is compared with the clusters if control has signed it.

    The exit code is 0 if both clusters have the same records, and the same as when the move ended.

    \b
    Examples:
      meshctl topic move verify 3f9a01bc
      meshctl topic move verify apples.certificate
    """
    connection = session.connect()
    file = Path(move_id)
    if file.is_file():
        signed = certificates_pb.VerifySignedTopicMoveRequest(signed=_read(file))
        told = connection.call(connection.move_certificates.VerifySignedTopicMove, signed, at_least=VERIFY_SECONDS)
        answer: Message = told
        move_id, found = told.move.name, told.now
    else:
        request = moves_pb.VerifyTopicMoveRequest(name=_name(move_id))
        answer = found = connection.call(connection.topic_moves.VerifyTopicMove, request, at_least=VERIFY_SECONDS)
        told = None
    if session.as_json:
        print_json(answer)
    else:
        if told is not None:
            way = f"{origin_of(told.move)} to {told.move.copy.target_cluster}"
            click.echo(f"move {_short(told.move)} of {told.move.spec.topic} from {way}, signed by {told.signer}\n")
        _tell_certificate(found)
    if not found.confirmed:
        text = f"move {_short_name(move_id)} is not confirmed: {'; '.join(found.differences)}"
        raise MeshctlError(text, ExitCode.REFUSED, status="NOT_CONFIRMED")


@move.command()
@click.argument("move_id", metavar="ID")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def cancel(session: Session, move_id: str, reason: str) -> None:
    """End a move before its cut: the topic stays where it is, with the copy on the other cluster.

    \b
    Example:
      meshctl topic move cancel 3f9a01bc
    """
    connection = session.connect()
    request = moves_pb.CancelTopicMoveRequest(name=_name(move_id), reason=reason, request_id=str(uuid.uuid4()))
    _tell(session, connection.call(connection.topic_moves.CancelTopicMove, request))


@move.command()
@click.argument("move_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Until the topic is back.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def undo(session: Session, move_id: str, wait: bool, reason: str) -> None:
    """Move the topic of a move back, with the records that it got since.

    The old log ends at the cut, so the move back copies only the records that are newer.

    \b
    Example:
      meshctl topic move undo 3f9a01bc --wait
    """
    before = _get(session.connect(), move_id)
    if before.state != moves_pb.TOPIC_MOVE_STATE_DONE:
        text = f"move {_short(before)} is {_state(before)}: only a move that is done can be undone"
        raise MeshctlError(text, ExitCode.REFUSED, status="NOT_DONE")
    spec = moves_pb.TopicMoveSpec()
    spec.CopyFrom(before.spec)
    spec.target_cluster = origin_of(before)
    spec.delete_old = False
    _start(session, spec, reason or f"undoes {before.name}", wait=wait)


def _start(session: Session, spec: moves_pb.TopicMoveSpec, reason: str, *, wait: bool) -> None:
    connection = session.connect()
    request = moves_pb.StartTopicMoveRequest(spec=spec, reason=reason, request_id=str(uuid.uuid4()))
    found = connection.call(connection.topic_moves.StartTopicMove, request)
    if wait:
        name = found.name
        for change in followed(found, lambda: _get(connection, name), lambda of: of.state in ENDS, LOOK_SECONDS):
            found = change
            if not session.as_json:
                click.echo(f"{_short(found)} {_state(found)}, {_behind(found)} behind", err=True)
    _tell(session, found)
    if wait and found.state != moves_pb.TOPIC_MOVE_STATE_DONE:
        raise MeshctlError(
            f"move {_short(found)} {_state(found)}: {found.problem}", ExitCode.REFUSED, status="NOT_DONE"
        )


def _read(file: Path) -> certificates_pb.SignedTopicMove:
    try:
        return json_format.Parse(file.read_text(encoding="utf-8"), certificates_pb.SignedTopicMove())
    except (OSError, UnicodeDecodeError, json_format.ParseError) as error:
        text = f"{file} is no file of `meshctl topic move certificate`: {error}"
        raise MeshctlError(text, ExitCode.BAD_REQUEST) from error


def _get(connection: Connection, move_id: str) -> moves_pb.MoveWithRecords:
    return connection.call(connection.topic_moves.GetTopicMove, moves_pb.GetTopicMoveRequest(name=_name(move_id)))


def _tell(session: Session, found: moves_pb.MoveWithRecords) -> None:
    if session.as_json:
        print_json(found)
        return
    way = f"{origin_of(found)} to {found.copy.target_cluster}"
    pause = f", producers waited {length_of(found.pause)}" if durations.whole_ms(found.pause) else ""
    click.echo(f"move {_short(found)} of {found.spec.topic} from {way} is {_state(found)}{pause}")
    if found.choice:
        click.echo(f"  it copies first, because: {found.choice}")
    if found.HasField("stitch") and found.state in ENDS and found.state != moves_pb.TOPIC_MOVE_STATE_DONE:
        click.echo(f"  the log stays stitched: new records go to {found.stitch.way.target_topic}, and all can be read")


def _tell_course(found: moves_pb.MoveWithRecords) -> None:
    """The steps between the two cuts, and what came behind them."""
    if found.HasField("stitch"):
        first = found.stitch
        pause = f"; producers waited {length_of(first.pause)}" if durations.whole_ms(first.pause) else ""
        click.echo(
            f"\nfirst cut at {moment(first.end_time)}{pause}: new records go to {first.way.target_topic} on "
            f"{first.way.target_cluster}"
        )
        print_table(MAP, map(_map_row, first.cuts), empty="")
    for each in found.deleted:
        click.echo(f"deleted since: {each.topic} on {each.cluster_name}")


def _tell_certificate(of: moves_pb.TopicMoveCertificate) -> None:
    if any(not each.by_record and not each.HasField("source") for each in of.partitions):  # nothing was copied
        print_table(MAP, map(_map_row, of.partitions), empty="No partition was asked for.")
    else:
        _tell_evidence(of)
    if of.positions:
        click.echo()
        positions = ((each.group, each.partition, each.before, each.after) for each in of.positions)
        print_table(("GROUP", "PARTITION", "BEFORE", "AFTER"), positions, empty="")
    pause = f"; producers waited {length_of(of.pause)}" if durations.whole_ms(of.pause) else ""
    click.echo(f"\n{'confirmed' if of.confirmed else 'not confirmed'} at {moment(of.read_time)}{pause}")
    for each in of.differences:
        click.echo(f"  {each}")


def _map_row(of: moves_pb.TopicMoveCut | moves_pb.TopicMoveEvidence) -> tuple[int, ...]:
    return of.partition, of.start, of.end, of.base, of.client_offset


def _tell_evidence(of: moves_pb.TopicMoveCertificate) -> None:
    rows = (
        (each.partition, each.start, each.end, each.source.records, f"{each.source.crc:08x}", each.target.records,
         f"{each.target.crc:08x}")
        for each in of.partitions
    )  # fmt: skip
    print_table(EVIDENCE, rows, empty="No partition was read.")


def _row(of: moves_pb.MoveWithRecords) -> tuple[object, ...]:
    return (
        _short(of), of.spec.topic, origin_of(of), of.copy.target_cluster, _state(of), _behind(of),
        length_of(of.pause), moment(of.create_time), of.actor, of.problem or of.progress.problem,
    )  # fmt: skip


def _behind(of: moves_pb.MoveWithRecords) -> str:
    return str(of.progress.lag) if of.HasField("progress") and of.state not in ENDS else "-"


def _state(of: moves_pb.MoveWithRecords) -> str:
    return word(moves_pb.TopicMoveState, of.state)


def _short(of: moves_pb.MoveWithRecords) -> str:
    return _short_name(of.name)


def _short_name(name: str) -> str:
    return name.removeprefix("topicmoves/")


def _name(given: str) -> str:
    return given if given.startswith("topicmoves/") else f"topicmoves/{given}"
