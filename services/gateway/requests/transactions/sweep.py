"""Finishes decisions that no client comes to finish: each gateway reads the logs at its start, and from time to time.

A running client retries until all parts are done. So a gateway finishes a decision only after it was found undone
twice, with all its clusters in reach each time: by then no other gateway is about to finish it. This matters with the
first protocol, where the same identity goes on to the next transaction.

If the marker of a written decision does not come for as long, the gateway asks home's coordinator (`decisions.settle`).

While a home is away, what the gateway has read of its log counts: the other clusters' parts don't need it.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

from mesh.transactions import TransactionLog
from services.gateway.requests.plan import Command, MeshView
from services.gateway.requests.transactions.decisions import finish, open_parts, settle
from services.gateway.requests.transactions.holding import forget_finished
from services.gateway.requests.transactions.home import takes_part
from services.gateway.requests.transactions.log_reading import known_log, read_log
from services.gateway.requests.transactions.sight import KnownDecision

UNDONE_S: Final = 4.0
"""Seconds that a decision stays undone before a gateway finishes it. Clients retry within a second."""

Undone = Mapping[KnownDecision, float]
"""Since when a decision's parts were seen in reach and open, in monotonic seconds."""


def sweep(before: Undone, mesh: MeshView) -> Generator[Command, Any, dict[KnownDecision, float]]:
    """Finishes the decisions that were undone for too long. Returns the others, for the next call."""
    undone: dict[KnownDecision, float] = {}
    for home in mesh.table.clusters:
        if not takes_part(home, mesh):
            continue
        found = yield from _as_seen(home, mesh)
        if found is None:
            continue
        for decision in found.written:
            named = KnownDecision.of(home, decision)
            undone[named] = before.get(named, mesh.now)
            if mesh.now - undone[named] >= UNDONE_S:
                yield from settle(home, found, decision.transactional_id, mesh)
                if decision not in found.written:
                    del undone[named]
        for decision in found.decisions:
            named = KnownDecision.of(home, decision)
            since = before.get(named, mesh.now)
            if mesh.now - since >= UNDONE_S:
                yield from finish(home, decision, mesh)
            elif (yield from open_parts(decision, mesh)) is not None:
                undone[named] = since
    forget_finished(mesh)
    return undone


def _as_seen(home: str, mesh: MeshView) -> Generator[Command, Any, TransactionLog | None]:
    """The home's log; None while it can't be read and the home is not away."""
    away = not mesh.clusters[home].available
    found = None if away else (yield from read_log(home, mesh))
    mesh.memory.sight.read(home, mesh.now, found=found is not None)
    return known_log(home, mesh) if away else found
