"""What was decided and nobody comes to finish: each gateway looks through the logs at its start, and now and then.

A client that lives asks again until all is done, so a decision is only taken up when it was found undone twice, all its
clusters in reach each time: by then nobody else is about to finish it. With the first protocol that matters, for the
same identity goes on to the next transaction.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

from services.gateway.requests.plan import Command, MeshView
from services.gateway.requests.transactions.decisions import finish, open_parts, read_log
from services.gateway.requests.transactions.home import takes_part

UNDONE_S: Final = 4.0
"""So long a decision stands before it is taken up. Clients ask again within a second."""

Undone = Mapping[tuple[str, bytes], float]
"""By home and key, since when the parts of a decision were seen to be in reach and open, in monotonic seconds."""


def sweep(before: Undone, mesh: MeshView) -> Generator[Command, Any, dict[tuple[str, bytes], float]]:
    """Finish what has been undone for too long. Gives the rest, for the next time."""
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
