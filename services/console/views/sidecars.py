"""Sidecars with their consumer instances, one instance with its orders, and the orders themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mesh import durations
from mesh.rpc import admin, events, instances
from mesh.wording import short, word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here, wrong
from services.console.parts import Cell, Cells, Facts, Moved, Notice, Page, Part, Table, Tone
from services.console.views.overview import members

WAIT_MS = 5000
COMMANDS = {
    "pause": events.SidecarCommand(pause=events.PauseInstance()),
    "resume": events.SidecarCommand(resume=events.ResumeInstance()),
    "drain": events.SidecarCommand(drain=events.DrainInstance()),
}


async def listing(ask: Ask) -> Page:
    stubs = ask.caller.stubs
    status, found = await asyncio.gather(
        ask.caller.call(stubs.decisions.GetStatus, admin.GetStatusRequest()), _instances(ask, "")
    )
    sidecars = members("Sidecars", admin.MEMBER_KIND_SIDECAR, status.members)
    links = [Cell("All orders", "/orders")]
    return Page("Sidecars", [sidecars, found], links=links, live="status")


async def one(ask: Ask) -> Page:
    name = ask.parameters["name"]
    table, orders = await asyncio.gather(_instances(ask, name), _orders(ask, f"members/{name}"))
    return Page(f"Sidecar {name}", [table, orders])


async def _instances(ask: Ask, sidecar: str) -> Table:
    request = instances.ListInstancesRequest(page_size=PAGE_SIZE, page_token=ask.page_token, sidecar=sidecar)
    answer = await ask.caller.call(ask.caller.stubs.instances.ListInstances, request)
    statuses = {each.name: each for each in answer.statuses}
    rows: list[Cells] = [
        [
            Cell(short(each.name), f"/instances/{short(each.name)}"),
            each.group,
            each.sidecar,
            ", ".join(each.topics) or each.topic_pattern or words.NONE,
            _state(statuses.get(each.name)),
            _lag(statuses.get(each.name)),
        ]
        for each in answer.instances
    ]
    columns = ("Instance", "Group", "Sidecar", "Topics", "State", "Records behind")
    more = ask.more(answer.next_page_token)
    return Table("Consumer instances", columns, rows, "There is no consumer instance.", more=more)


def _state(of: instances.InstanceStatus | None) -> Cell:
    return Cell("not reported", tone=Tone.QUIET) if of is None else words.toned(word(instances.InstanceState, of.state))


def _lag(of: instances.InstanceStatus | None) -> str:
    """The sum over partitions whose ends are known."""
    known = [] if of is None else [each.lag for each in of.partitions if each.lag >= 0]
    return f"{sum(known):,}" if known else words.NONE


async def instance(ask: Ask) -> Page:
    name = ask.parameters["name"]
    request = instances.DescribeInstanceRequest(name=f"instances/{name}")
    found = await ask.caller.call(ask.caller.stubs.instances.DescribeInstance, request)
    of, status = found.instance, found.status if found.HasField("status") else None
    facts = Facts(
        "Instance",
        [
            ("State", _state(status)),
            ("Group", of.group),
            ("Sidecar", Cell(of.sidecar, f"/sidecars/{of.sidecar}")),
            ("Sidecar reports", "yes" if found.sidecar_alive else "no"),
            ("Topics", ", ".join(of.topics) or of.topic_pattern or words.NONE),
            ("Records behind", _lag(status)),
            ("Last report", words.age(found.status_time)),
            ("Made", words.moment(of.create_time)),
        ],
    )
    rows: list[Cells] = [
        [each.topic, each.partition, _known(each.position), _known(each.committed), _known(each.lag)]
        for each in (status.partitions if status is not None else ())
    ]
    parts: list[Part] = [Notice(status.problem, Tone.BAD)] if status is not None and status.problem else []
    parts += [
        facts,
        Table("Partitions", ("Topic", "Partition", "Next", "Committed", "Behind"), rows, "It has no partition."),
        _order_table(found.orders, ""),
    ]
    if ask.may_change:
        parts += [
            change(verb.capitalize(), f"/instances/{name}/{verb}", f"{verb.capitalize()} the instance")
            for verb in COMMANDS
        ]
    return Page(f"Instance {name}", parts, links=[Cell("Its orders", here("/orders", target=f"instances/{name}"))])


def _known(number: int) -> str:
    return words.NONE if number < 0 else f"{number:,}"


async def order(ask: Ask) -> Moved:
    """Places an order to an instance, and shows its outcome."""
    name, verb = ask.parameters["name"], ask.parameters["verb"]
    if verb not in COMMANDS:
        raise wrong("order", f"{verb!r} is none of {', '.join(COMMANDS)}")
    request = instances.PlaceOrderRequest(
        target=f"instances/{name}", command=COMMANDS[verb], wait=durations.of_ms(WAIT_MS), reason=ask.said("reason"),
        request_id=ask.said("request_id"),
    )  # fmt: skip
    await ask.caller.call(ask.caller.stubs.instances.PlaceOrder, request)
    return Moved(f"/instances/{name}")


async def orders(ask: Ask) -> Page:
    return Page("Orders", [await _orders(ask, ask.said("target"))], lead="Orders to sidecars and pipelines.")


async def _orders(ask: Ask, target: str) -> Table:
    request = instances.ListOrdersRequest(page_size=PAGE_SIZE, page_token=ask.page_token, target=target)
    answer = await ask.caller.call(ask.caller.stubs.instances.ListOrders, request)
    return _order_table(answer.orders, ask.more(answer.next_page_token))


def _order_table(found: Iterable[events.SidecarOrder], more: str) -> Table:
    rows: list[Cells] = [
        [
            words.moment(each.create_time),
            each.target,
            (each.command.WhichOneof("command") or words.NONE).replace("_", " "),
            words.toned(word(events.OrderResult, each.outcome.result, "open")),
            each.outcome.description or words.NONE,
        ]
        for each in found
    ]
    return Table("Orders", ("Placed", "For", "Order", "Outcome", "What it says"), rows, "There is no order.", more=more)
