"""The Kafka clients of the mesh: who is connected, with what, what each does, and the traffic of the last hour."""

from __future__ import annotations

from collections.abc import Sequence

from mesh.rpc import admin, clients
from mesh.wording import short
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, search, tick
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Field, Notice, Page, Part, Table, Tone
from services.console.views.traffic import top

FILTERS = ("topic", "group", "client_id", "principal", "gateway", "removed_by")
SHOWN_NAMES = 3
"""Topics and groups of one client."""
LEAD = "Connections of one kind are one client. A dry run of a rule names the clients that the change would move."


async def listing(ask: Ask) -> Page:
    request = clients.ListClientsRequest(
        page_size=PAGE_SIZE, page_token=ask.page_token, with_errors=bool(ask.said("with_errors")),
        **{name: ask.said(name) for name in FILTERS},
    )  # fmt: skip
    found = await ask.caller.call(ask.caller.stubs.clients.ListClients, request)
    status = await ask.caller.call(ask.caller.stubs.decisions.GetStatus, admin.GetStatusRequest())
    gateways: list[Cells] = [
        [short(each.name), f"{each.client_count:,}", words.age(each.last_seen_time)]
        for each in status.members
        if each.kind == admin.MEMBER_KIND_GATEWAY
    ]
    parts: list[Part] = [
        search(
            "/clients",
            "Filter",
            *(Field(name, label, value=ask.said(name)) for name, label in zip(FILTERS[:5], LABELS, strict=True)),
            Field("removed_by", "With versions that this Kafka lacks", value=ask.said("removed_by"), help="4.0"),
            tick("with_errors", "With errors", ask.said("with_errors")),
            title="Filter",
        ),
        _table(ask, found),
        *_notices(found),
        Table("Gateways", ("Gateway", "Clients", "Seen"), gateways, "No gateway is connected."),
    ]
    try:
        parts += await top(ask, ("client", "principal"), "bytes", "Clients in the last hour")
    except CallError as failure:
        parts.append(Notice(f"No traffic is known: {failure.text}", Tone.WARNING))
    return Page("Clients", parts, lead=LEAD)


LABELS = ("Topic", "Group", "Client id", "Principal", "Gateway")
COLUMNS = ("Client id", "Principal", "Software", "At", "Connections", "A second", "Does", "Errors", "Removed versions")


def _table(ask: Ask, found: clients.ListClientsResponse) -> Table:
    rows = [_row(each) for each in found.clients]
    return Table("Connected now", COLUMNS, rows, "No client is like that.", more=ask.more(found.next_page_token))


def _row(of: clients.Client) -> Cells:
    where = f"{of.gateway}, {of.listener}" if of.listener else of.gateway
    rates = of.rates
    return [
        of.client_id or words.NONE,
        of.principal or words.NONE,
        of.software or words.NONE,
        f"{where}, from {of.address}" if of.address else where,
        f"{of.connections:,}, since {words.age(of.since_time)}",
        f"{rates.requests:.1f} requests, {words.size(int(rates.bytes_in))} in, {words.size(int(rates.bytes_out))} out",
        _deeds(of),
        _errors(of),
        _removed(of),
    ]


def _deeds(of: clients.Client) -> str:
    deeds = (("writes", of.produces_to), ("reads", of.consumes_from), ("group", of.groups))
    return "; ".join(f"{deed} {_names(names)}" for deed, names in deeds if names) or words.NONE


def _errors(of: clients.Client) -> str:
    counts: dict[str, int] = {}
    for api in of.apis:
        for each in api.errors:
            counts[each.error] = counts.get(each.error, 0) + each.answers
    return _names([f"{error} {number:,}" for error, number in sorted(counts.items(), key=lambda one: -one[1])])


def _removed(of: clients.Client) -> Cell | str:
    """The versions of the client that a release of Kafka lacks: its brokers refuse the client without a gateway."""
    found = [f"{each.api} {each.lowest_version} (in {each.removed_in})" for each in of.apis if each.removed_in]
    return Cell(_names(found), tone=Tone.WARNING) if found else words.NONE


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more or words.NONE


def _notices(found: clients.ListClientsResponse) -> list[Part]:
    parts: list[Part] = [
        Notice(
            f"{each.gateway} leaves out {words.count(each.kinds, 'client') if each.kinds else 'clients'} with "
            f"{words.count(each.connections, 'connection')}: the idlest.",
            Tone.WARNING,
        )
        for each in found.left_out
    ]
    if found.addresses_hidden:
        parts.append(Notice("Addresses are hidden: your role is below that of CLIENT_ADDRESSES."))
    return parts
