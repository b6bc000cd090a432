"""Shared parts of commands that place an order to a sidecar: options, the order itself, and its outcome."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

from mesh import durations
from mesh.rpc import events
from mesh.rpc import instances as instances_pb
from mesh.wording import short
from meshctl import instances
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import moment, print_json, print_table
from meshctl.session import Session

USUAL_WAIT = 10.0
LONGEST_WAIT = 55.0
"""Seconds; control waits for a minute at most, and its answer has to come back."""
USUAL_EXPIRY = 30.0
CALL_MARGIN = 5.0
"""Seconds that a call may take beyond the wait."""
_ABOUT = {"members": "--sidecar", "pipelines": "--pipeline"}
"""The option of `meshctl history` by what a target is."""
COLUMNS = ("ORDER", "FOR", "WHAT", "SIDECAR", "RESULT", "GIVEN", "WHAT CAME OF IT")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Ordering:
    """How an order is given; times in seconds."""

    reason: str
    wait: float
    expire: float


def order_options(wait: float = USUAL_WAIT, expire: float = USUAL_EXPIRY, holder: str = "sidecar") -> Callable[[F], F]:
    """The options of an order that changes something, given to the command as `ordering`; `wait` and `expire`: usual
    seconds; `holder`: who carries it out.
    """

    def decorated(command: F) -> F:
        @_wait_option(wait)
        @click.option(
            "--expire",
            type=click.FloatRange(min=0.001, max=86_400),
            default=expire,
            show_default=True,
            metavar="SECONDS",
            help=f"How long the order stays open for a {holder} that is not there.",
        )
        @_reason_option
        @functools.wraps(command)
        def wrapped(*args: Any, reason: str, wait: float, expire: float, **kwargs: Any) -> Any:
            return command(*args, ordering=Ordering(reason, wait, expire), **kwargs)

        return cast(F, wrapped)

    return decorated


def question_options(command: F) -> F:
    """Those of an order that mostly asks: it is not open for longer than somebody waits for the answer."""

    @_wait_option(USUAL_WAIT)
    @_reason_option
    @functools.wraps(command)
    def wrapped(*args: Any, reason: str, wait: float, **kwargs: Any) -> Any:
        return command(*args, ordering=Ordering(reason, wait, wait or USUAL_EXPIRY), **kwargs)

    return cast(F, wrapped)


_reason_option = click.option("--reason", default="", help="Why, for the history.")


def _wait_option(usual: float) -> Callable[[F], F]:
    return click.option(
        "--wait",
        type=click.FloatRange(min=0, max=LONGEST_WAIT),
        default=usual,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the outcome; 0: give the order, and don't.",
    )


def carry_out(session: Session, target: str, command: events.SidecarCommand, ordering: Ordering) -> None:
    """Gives an order and shows its outcome; an order that failed ends the command with an error."""
    request = instances_pb.PlaceOrderRequest(
        target=target, command=command, wait=durations.of_ms(round(ordering.wait * 1000)), reason=ordering.reason,
        expire_after=durations.of_ms(max(1, round(ordering.expire * 1000))), request_id=str(uuid.uuid4()),
    )  # fmt: skip
    connection = session.connect()
    order = connection.call(connection.instances.PlaceOrder, request, at_least=ordering.wait + CALL_MARGIN)
    if session.as_json:
        print_json(order)
    _refuse_what_failed(order, ordering.wait)
    if not session.as_json:
        _show(order)


def _refuse_what_failed(order: events.SidecarOrder, wait: float) -> None:
    what = f"{instances.target(order.target)}: {instances.command(order.command)}"
    result = instances.result(order)
    match result:
        case "done":
            return
        case "open" if not wait:
            return
        case "open":
            about = _ABOUT.get(order.target.partition("/")[0], "--instance")
            later = f"it stays open until {moment(order.expire_time)}"
            see = f"`meshctl history {about} {short(order.target)}` shows what becomes of it"
            raise MeshctlError(
                f"{what}: not done within {wait:g} s by {instances.holder(order)}; {later}: {see}",
                ExitCode.UNAVAILABLE,
                status="OPEN",
            )
        case _:
            code = ExitCode.UNAVAILABLE if result == "expired" else ExitCode.REFUSED
            raise MeshctlError(f"{what}: {order.outcome.description}", code, status=result.upper())


def _show(order: events.SidecarOrder) -> None:
    what = f"{instances.target(order.target)}: {instances.command(order.command)}"
    if not order.HasField("outcome"):
        click.echo(f"{what}: order {short(order.name)} is given to {instances.holder(order)}")
        return
    click.echo(f"{what}: done{f', {order.outcome.description}' if order.outcome.description else ''}")
    said = instances.details(order)
    if said:
        print_table(("NAME", "VALUE"), said, empty="")


def print_orders(found: Sequence[events.SidecarOrder], *, empty: str) -> None:
    """Orders and their outcomes."""
    print_table(
        COLUMNS,
        (
            (
                short(each.name), instances.target(each.target), instances.command(each.command),
                short(each.sidecar), instances.result(each), moment(each.create_time), each.outcome.description,
            )
            for each in found
        ),
        empty=empty,
    )  # fmt: skip
