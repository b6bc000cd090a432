"""Listeners of gateways: the decisions about them, and each one at each gateway."""

from __future__ import annotations

from mesh.listeners.words import policy_text
from mesh.rpc import listeners
from services.console.asking import Ask
from services.console.parts import Cells, Page, Table

NOTHING = "Nothing is decided: the settings of each gateway count."
SILENT = "No gateway has reported its listeners."


async def listing(ask: Ask) -> Page:
    answer = await ask.caller.call(ask.caller.stubs.listeners.ListListeners, listeners.ListListenersRequest())
    decided: list[Cells] = [[each.name, policy_text(each)] for each in answer.listeners]
    of = f"Of revision {answer.revision:,}." if answer.revision else ""
    columns = ("Gateway", "Listener", "Address", "Advertised", "From", "Ending connections", "Open")
    parts = [
        Table("Decided", ("Listener", "Policy"), decided, NOTHING, of),
        Table("At gateways", columns, [_row(each.gateway, each.listener) for each in answer.gateways], SILENT),
    ]
    return Page("Listeners", parts, lead="The doors of gateways, which change while clients are connected.")


def _row(gateway: str, of: listeners.OpenListener) -> Cells:
    origin = "a decision" if of.decided else "settings"
    return [
        gateway,
        of.name,
        of.address,
        of.advertised,
        origin,
        f"{of.draining:,}",
        f"no: {of.fault}" if of.fault else "yes",
    ]
