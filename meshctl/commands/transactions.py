"""`meshctl transactions`: transactions over all clusters, which hang, and the end of one by an operator."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import timedelta

import click

from mesh.rpc import transactions as pb
from meshctl.output import age, as_dict, moment, print_json, print_table
from meshctl.session import Command, Group, Session, pass_session

COLLECTION = "transactions"
PAGE_SIZE = 1000
END_SECONDS = 60.0
"""An end waits for the coordinators of all clusters."""
STATES = {
    "undecided": pb.TRANSACTION_STATE_UNDECIDED,
    "decided": pb.TRANSACTION_STATE_DECIDED,
    "ending": pb.TRANSACTION_STATE_ENDING,
    "ended": pb.TRANSACTION_STATE_ENDED,
}
WORDS = {value: word for word, value in STATES.items()}
OFFSETS_TOPIC = "__consumer_offsets"
_SPAN = re.compile(r"(?=.)(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")


class Span(click.ParamType):
    """A length of time."""

    name = "span"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = _SPAN.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no length of time; possible are 90s, 10m, 2h, 1d, 1h30m", param, ctx)
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        try:
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


@click.group(cls=Group)
def transactions() -> None:
    """Transactions over all clusters: list them, describe one, finish or abort one that hangs.

    A transaction that is decided can only be finished. One that is not decided can only be aborted.

    \b
    Examples:
      meshctl transactions list --hanging
      meshctl transactions describe payments-1
      meshctl transactions abort payments-1 --reason "its application is gone"
    """


@transactions.command("list", cls=Command)
@click.option("--hanging", is_flag=True, help="Only those that are open for longer than their time-out.")
@click.option("--older-than", type=Span(), help="Only those that are open for longer than this: 90s, 10m, 2h.")
@click.option("--id-prefix", default="", help="Only transactional ids that begin so.")
@click.option(
    "--state", "states", type=click.Choice(list(STATES)), multiple=True, help="Only these; all open ones otherwise."
)
@pass_session
def list_transactions(
    session: Session, hanging: bool, older_than: timedelta | None, id_prefix: str, states: tuple[str, ...]
) -> None:
    """Show transactions by their transactional id: the open ones, unless --state says otherwise.

    \b
    Examples:
      meshctl transactions list
      meshctl transactions list --older-than 10m --id-prefix payments-
      meshctl transactions list --state decided -o json
    """
    request = pb.ListTransactionsRequest(
        page_size=PAGE_SIZE, id_prefix=id_prefix, hanging=hanging, states=[STATES[each] for each in states]
    )
    if older_than is not None:
        request.older_than.FromTimedelta(older_than)
    connection = session.connect()
    pages = list(connection.pages(connection.transactions.ListTransactions, request))
    found = [each for page in pages for each in page.transactions]
    problems = list(dict.fromkeys(problem for page in pages for problem in page.problems))
    if session.as_json:
        print_json({"transactions": [as_dict(each) for each in found], "problems": problems})
        return
    print_table(
        ("TRANSACTIONAL ID", "STATE", "HOME", "OPEN ON", "SINCE", "AGE", "HANGS"),
        (_row(each) for each in found),
        empty="No transaction is like that.",
    )
    _tell(problems)


@transactions.command(cls=Command)
@click.argument("transactional_id", metavar="ID")
@pass_session
def describe(session: Session, transactional_id: str) -> None:
    """Show the present transaction of ID with all its parts, or the last one.

    \b
    Examples:
      meshctl transactions describe payments-1
      meshctl transactions describe payments-1 -o json
    """
    connection = session.connect()
    request = pb.GetTransactionRequest(name=_name(transactional_id))
    found = connection.call(connection.transactions.GetTransaction, request)
    if session.as_json:
        print_json(found)
        return
    hangs = ", hangs" if found.hanging else ""
    click.echo(f"{found.transactional_id}: {_state(found)}{hangs}; home {found.home_cluster or 'unknown'}")
    if found.decision:
        click.echo(f"decision: {found.decision}")
    print_table(
        ("CLUSTER", "STATE", "PRODUCER", "EPOCH", "SINCE", "AGE", "TIME-OUT", "PARTITIONS"),
        (_part(each) for each in found.parts),
        empty="No cluster has a part of it.",
    )
    _tell(found.problems)


@transactions.command(cls=Command)
@click.argument("transactional_id", metavar="ID")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def finish(session: Session, transactional_id: str, reason: str) -> None:
    """Commit what is still open of the transaction of ID, whose commit is decided.

    Gateways do so by themselves within seconds, if one of them runs and reaches the clusters.

    \b
    Examples:
      meshctl transactions finish payments-1 --reason "all gateways were down"
    """
    connection = session.connect()
    request = pb.FinishTransactionRequest(name=_name(transactional_id), reason=reason, request_id=str(uuid.uuid4()))
    _show_end(session, connection.call(connection.transactions.FinishTransaction, request, END_SECONDS))


@transactions.command(cls=Command)
@click.argument("transactional_id", metavar="ID")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def abort(session: Session, transactional_id: str, reason: str) -> None:
    """Abort the transaction of ID on all clusters, and fence the producer that uses ID now.

    Nothing is aborted of a transaction whose commit is decided.

    \b
    Examples:
      meshctl transactions abort payments-1 --reason "its application is gone"
    """
    connection = session.connect()
    request = pb.AbortTransactionRequest(name=_name(transactional_id), reason=reason, request_id=str(uuid.uuid4()))
    _show_end(session, connection.call(connection.transactions.AbortTransaction, request, END_SECONDS))


def _show_end(session: Session, answer: pb.EndTransactionResponse) -> None:
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"{answer.transaction.transactional_id}: {answer.outcome} (revision {answer.revision})")
    _tell(answer.transaction.problems)


def _name(transactional_id: str) -> str:
    return f"{COLLECTION}/{transactional_id}"


def _state(of: pb.Transaction) -> str:
    return WORDS.get(of.state, "in a state that this meshctl does not know")


def _row(of: pb.Transaction) -> tuple[object, ...]:
    open_on = ", ".join(part.cluster for part in of.parts if part.HasField("start_time"))
    hangs = "yes" if of.hanging else "no"
    return of.transactional_id, _state(of), of.home_cluster, open_on or "-", moment(of.start_time), _age(of), hangs


def _age(of: pb.Transaction | pb.TransactionPart) -> str:
    return age(of.start_time).removesuffix(" ago")


def _part(of: pb.TransactionPart) -> tuple[object, ...]:
    state = f"{of.state}, waits for its commit" if of.waits_for_commit else of.state
    timeout = f"{of.timeout.ToMilliseconds() / 1000:g} s"
    written = "; ".join(_topic(each) for each in of.topics)
    since = moment(of.start_time)
    return of.cluster, state, of.producer_id, of.producer_epoch, since, _age(of), timeout, written or "-"


def _topic(of: pb.TransactionTopic) -> str:
    """ "orders/0,1"; offsets of groups have no partitions that say anything."""
    numbers = ",".join(str(number) for number in of.partitions)
    return "offsets of groups" if of.topic == OFFSETS_TOPIC else f"{of.topic}/{numbers}"


def _tell(problems: Iterable[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)
