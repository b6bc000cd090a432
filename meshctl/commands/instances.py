"""`meshctl instances`: the consumers that sidecars hold for backends, and what is done to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from mesh import durations
from mesh.rpc import events
from mesh.rpc import instances as instances_pb
from mesh.wording import short
from meshctl.commands.orders import Ordering, carry_out, order_options, print_orders
from meshctl.completions import instance_names, sidecar_names
from meshctl.instances import facts, known, lag, reads, state
from meshctl.looking import Looking, look_options, show_looks
from meshctl.moments import in_utc
from meshctl.output import age, as_dict, moment, print_json, print_table, table
from meshctl.session import Group, Session, pass_session

COLUMNS = ("INSTANCE", "SIDECAR", "READS", "STATE", "LAG", "LAST USE", "PROBLEM")
NOBODY = "No sidecar holds a consumer."
ROUTE_ARROW = "->"
"""Between an expression and the path of the backend."""
INTERVAL_SECONDS = 3.0  # sidecars say how their instances do every few seconds
USUAL_ORDERS = 20
DRAIN_WAIT = 40.0
"""Seconds; a drain takes as long as it may wait for commits, and some more."""

Found = Sequence[tuple[events.ConsumerInstance, instances_pb.InstanceStatus | None]]

instance_argument = click.argument("instance", metavar="GROUP.INSTANCE", shell_complete=instance_names)


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def instances(context: click.Context) -> None:
    """The consumers that sidecars hold for backends: list them, show one, and order its sidecar to change it.

    Each order is an event in the log, carried out by the sidecar that holds the instance; so is what came of it.

    \b
    Examples:
      meshctl instances list --group billing -w
      meshctl instances describe billing.one
      meshctl instances pause billing.one --reason 'the database is slow'
      meshctl instances seek billing.one --time 2026-11-21T20:00:00Z
      meshctl instances drain billing.one --within 60
      meshctl instances configure billing.reactive --max-concurrency 16
      meshctl instances resume billing.one
    """
    if context.invoked_subcommand is None:
        context.invoke(list_instances)


@instances.command("list")
@click.option("--sidecar", default="", metavar="NAME", shell_complete=sidecar_names, help="Only those that it holds.")
@click.option("--group", default="", metavar="GROUP", help="Only those of this consumer group.")
@look_options(INTERVAL_SECONDS)
@pass_session
def list_instances(session: Session, sidecar: str, group: str, looking: Looking) -> None:
    """Show the consumers that sidecars hold, and how they do.

    \b
    Examples:
      meshctl instances list
      meshctl instances list --sidecar sidecar-1 -w
      meshctl instances list --group billing -o json
    """
    connection = session.connect()

    def print_one(found: Found) -> None:
        if session.as_json:
            held, statuses = [as_dict(each) for each, _ in found], [as_dict(each) for _, each in found if each]
            print_json({"instances": held, "statuses": statuses}, one_line=looking.again)
        else:
            print_table(COLUMNS, map(_row, found), empty=NOBODY)

    show_looks(
        session,
        looking,
        look=lambda: connection.all_instances(sidecar, group),
        print_one=print_one,
        as_table=lambda found: table(COLUMNS, map(_row, found)),
    )


def _row(each: tuple[events.ConsumerInstance, instances_pb.InstanceStatus | None]) -> Sequence[object]:
    instance, status = each
    last_use, problem = ("-", "") if status is None else (age(status.last_use_time), status.problem)
    return (
        short(instance.name), instance.sidecar, reads(instance), state(instance, status),
        known(lag(status)), last_use, problem,
    )  # fmt: skip


def print_instances(found: Iterable[events.ConsumerInstance]) -> None:
    """The table of `meshctl status`: what there is, not how it does."""
    print_table(
        ("INSTANCE", "SIDECAR", "READS", "KEY", "VALUE", "SINCE"),
        (
            (
                short(each.name), each.sidecar, reads(each),
                each.key_format, each.value_format, moment(each.create_time),
            )
            for each in found
        ),
        empty=NOBODY,
    )  # fmt: skip


@instances.command()
@instance_argument
@pass_session
def describe(session: Session, instance: str) -> None:
    """Show one consumer: its subscription, its position in each partition, and the orders for it.

    \b
    Example:
      meshctl instances describe billing.one
    """
    connection = session.connect()
    request = instances_pb.DescribeInstanceRequest(name=_name(instance))
    found = connection.call(connection.instances.DescribeInstance, request)
    if session.as_json:
        print_json(found)
        return
    status = found.status if found.HasField("status") else None
    click.echo(f"{short(found.instance.name)}: {state(found.instance, status)}")
    for label, text in facts(found.instance):
        click.echo(f"  {label + ':':<10}{text}")
    heard = f"heard of {age(found.status_time)}" if status else "has not said yet how it does"
    click.echo(f"  {'status:':<10}{heard}, its sidecar {'is there' if found.sidecar_alive else 'is not there'}")
    if status is not None and status.problem:
        click.echo(f"  {'problem:':<10}{status.problem}")
    if status is not None and status.partitions:
        print_table(
            ("TOPIC", "PARTITION", "POSITION", "COMMITTED", "LAG"),
            (
                (each.topic, each.partition, known(each.position), known(each.committed), known(each.lag))
                for each in status.partitions
            ),
            empty="",
        )
    if found.orders:
        print_orders(found.orders, empty="")


@instances.command()
@instance_argument
@order_options()
@pass_session
def pause(session: Session, instance: str, ordering: Ordering) -> None:
    """Let a consumer give no records until it is resumed. It stays in its group, over restarts, too.

    \b
    Example:
      meshctl instances pause billing.one --reason 'the database is slow'
    """
    carry_out(session, _name(instance), events.SidecarCommand(pause=events.PauseInstance()), ordering)


@instances.command()
@instance_argument
@order_options()
@pass_session
def resume(session: Session, instance: str, ordering: Ordering) -> None:
    """Let a consumer give records again, after a pause or a drain.

    \b
    Example:
      meshctl instances resume billing.one
    """
    carry_out(session, _name(instance), events.SidecarCommand(resume=events.ResumeInstance()), ordering)


def _time(_context: click.Context, _parameter: click.Parameter, text: str | None) -> datetime | None:
    try:
        return None if text is None else in_utc(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; expected a time like 2026-11-21T20:00:00Z") from None


@instances.command()
@instance_argument
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="This record is next; needs a partition.")
@click.option("--time", callback=_time, metavar="TIME", help="The first record since then: 2026-11-21T20:00:00Z.")
@click.option("--first", is_flag=True, help="The first record there is.")
@click.option("--last", is_flag=True, help="The end: only what comes from now on.")
@click.option("--topic", default="", metavar="T", help="Only in this topic; in all that it has otherwise.")
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Only in this partition of the topic.")
@order_options()
@pass_session
def seek(session: Session, /, instance: str, topic: str, partition: int | None, ordering: Ordering, **to: Any) -> None:
    """Let a consumer continue at another position. Records that it delivered without a commit count no more.

    \b
    Examples:
      meshctl instances seek billing.one --first
      meshctl instances seek billing.one --last --topic orders
      meshctl instances seek billing.one --time 2026-11-21T20:00:00Z
      meshctl instances seek billing.one --offset 500 --topic orders --partition 0
    """
    said = {name: value for name, value in to.items() if value is not None and value is not False}
    if len(said) != 1:
        raise click.UsageError("say where to go on: --offset N, --time TIME, --first or --last; one of them")
    if (partition is not None and not topic) or ("offset" in said and partition is None):
        raise click.UsageError(
            "an offset is one of a partition, and a partition one of a topic: --topic T --partition P"
        )
    wanted = events.SeekInstance(topic=topic, partition=partition)
    ((name, value),) = said.items()
    if name == "time":
        wanted.time.FromDatetime(value)
    else:
        setattr(wanted, name, value)
    carry_out(session, _name(instance), events.SidecarCommand(seek=wanted), ordering)


@instances.command()
@instance_argument
@click.option(
    "--within",
    type=click.FloatRange(min=0.001, max=600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the sidecar waits for the commit of what was given.",
)
@order_options(wait=DRAIN_WAIT)
@pass_session
def drain(session: Session, instance: str, within: float, ordering: Ordering) -> None:
    """Let a consumer give nothing more, wait for the commit of what it gave, and leave its group until it is resumed.

    The next consumer of the group reads records again that were not committed in time.

    \b
    Examples:
      meshctl instances drain billing.one --reason 'upgrade of the backend'
      meshctl instances drain billing.one --within 120 --wait 0
    """
    wanted = events.DrainInstance(timeout=durations.of_ms(max(1, round(within * 1000))))
    carry_out(session, _name(instance), events.SidecarCommand(drain=wanted), ordering)


def _routes(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> list[events.DeliveryRoute]:
    routes = []
    for text in texts:
        when, arrow, path = text.rpartition(ROUTE_ARROW)
        if not arrow or not when.strip() or not path.strip():
            raise click.BadParameter(f"{text!r} is no route; expected \"headers.kind == 'order' -> /orders\"")
        routes.append(events.DeliveryRoute(when=when.strip(), path=path.strip()))
    return routes


@instances.command()
@instance_argument
@click.option("--topic", "topics", multiple=True, metavar="T", help="Read this topic instead; may be repeated.")
@click.option("--topic-pattern", default="", metavar="REGEX", help="Read all topics whose whole name matches, instead.")
@click.option("--backend-url", metavar="URL", help="Scheme, host and port: http://127.0.0.1:8081.")
@click.option("--backend-path", metavar="PATH", help="Path that takes batches.")
@click.option("--max-concurrency", type=click.IntRange(min=1), metavar="N", help="Batches that are out at a time.")
@click.option("--order-by-key/--order-by-partition", "order_by_key", default=None, help="Within which order is kept.")
@click.option("--max-batch-records", type=click.IntRange(min=1), metavar="N", help="Records of one batch.")
@click.option("--max-batch-bytes", type=click.IntRange(min=1), metavar="N", help="Keys and values of one batch.")
@click.option("--linger-ms", type=click.IntRange(min=0), metavar="MS", help="How long a batch waits for more records.")
@click.option(
    "--filter", metavar="CEL", help="Only records for which it is true; '' for all. The others count as done."
)
@click.option(
    "--route", "routes", multiple=True, callback=_routes, metavar="'CEL -> PATH'", help="Replaces all routes."
)
@click.option("--no-routes", is_flag=True, help="All records go to the usual path.")
@order_options()
@pass_session
def configure(
    session: Session, /, instance: str, topics: tuple[str, ...], topic_pattern: str, no_routes: bool,
    ordering: Ordering, **delivery: Any,
) -> None:  # fmt: skip
    """Change what a reactive consumer reads and how it delivers. Options left out keep their values.

    \b
    Examples:
      meshctl instances configure billing.reactive --topic orders --topic returns
      meshctl instances configure billing.reactive --backend-url http://127.0.0.1:8082 --max-concurrency 16
      meshctl instances configure billing.reactive --filter "headers.kind != 'test'"
      meshctl instances configure billing.reactive --route "value.total > 1000 -> /large" --reason 'large orders apart'
    """
    said = {name: value for name, value in delivery.items() if value not in (None, [])}
    if no_routes:
        if "routes" in said:
            raise click.UsageError("--route and --no-routes say different things; use one of them")
        said["routes"] = []
    if topics and topic_pattern:
        raise click.UsageError("--topic and --topic-pattern say different things; use one of them")
    if not said and not topics and not topic_pattern:
        raise click.UsageError("say what changes: --topic, --backend-url, --max-concurrency, ...; see --help")
    wanted = events.ConfigureInstance(topics=topics, topic_pattern=topic_pattern)
    if said:
        wanted.delivery.CopyFrom(events.DeliverySettings(**said))
        wanted.delivery_mask.paths.extend(said)
    carry_out(session, _name(instance), events.SidecarCommand(configure=wanted), ordering)


@instances.command()
@instance_argument
@order_options()
@pass_session
def remove(session: Session, instance: str, ordering: Ordering) -> None:
    """Close a consumer and forget it. One whose sidecar is gone is forgotten when the order expires.

    \b
    Example:
      meshctl instances remove billing.one --reason 'nobody polls it'
    """
    carry_out(session, _name(instance), events.SidecarCommand(remove=events.RemoveInstance()), ordering)


@instances.command()
@click.argument("instance", metavar="[GROUP.INSTANCE]", required=False, shell_complete=instance_names)
@click.option("--open", "open_only", is_flag=True, help="Only those that nobody has carried out yet.")
@click.option(
    "-n", "--count", "number", type=click.IntRange(min=1), default=USUAL_ORDERS, show_default=True, help="How many."
)
@pass_session
def orders(session: Session, instance: str | None, open_only: bool, number: int) -> None:
    """Show the orders for sidecars and their outcomes, newest first. `meshctl history` shows old orders.

    \b
    Examples:
      meshctl instances orders
      meshctl instances orders billing.one
      meshctl instances orders --open
    """
    target = "" if instance is None else _name(instance)
    found = session.connect().orders(target, number, open_only=open_only)
    if session.as_json:
        print_json({"orders": [as_dict(each) for each in found]})
        return
    print_orders(found, empty="No sidecar got an order.")


def _name(given: str) -> str:
    """The resource name of an instance; sidecars' own may be given, too."""
    return given if given.startswith(("instances/", "members/")) else f"instances/{given}"
