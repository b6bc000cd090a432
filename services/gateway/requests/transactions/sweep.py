"""Finishes decisions that no client comes to finish: each gateway reads the logs at its start, and from time to time.

A running client retries until all parts are done. So a gateway finishes a decision only after it was found undone
twice, with all its clusters in reach each time: by then no other gateway is about to finish it. This matters with the
first protocol, where the same identity goes on to the next transaction.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

from services.gateway.requests.plan import Command, MeshView
from services.gateway.requests.transactions.decisions import finish, open_parts, read_log
from services.gateway.requests.transactions.home import takes_part

UNDONE_S: Final = 4.0
"""Seconds that a decision stays undone before a gateway finishes it. Clients retry within a second."""

Undone = Mapping[tuple[str, bytes], float]
"""By home and key of a decision: since when its parts were seen in reach and open, in monotonic seconds."""


def sweep(before: Undone, mesh: MeshView) -> Generator[Command, Any, dict[tuple[str, bytes], float]]:
    """Finishes the decisions that were undone for too long. Returns the others, for the next call."""
    undone: dict[tuple[str, bytes], float] = {}
    for home in mesh.table.clusters:
        if not takes_part(home, mesh) or not mesh.clusters[home].available:
            continue
        found = yield from read_log(home, mesh)
        for decision in () if found is None else found.decisions:
            since = before.get((home, decision.key), mesh.now)
            if mesh.now - since >= UNDONE_S:
                yield from finish(home, decision, mesh)
            elif (yield from open_parts(decision, mesh)) is not None:
                undone[home, decision.key] = since
    return undone
