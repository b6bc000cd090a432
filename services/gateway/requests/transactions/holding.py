"""Holds back from `read_committed` readers what one cluster shows of a transaction and another does not show yet.

Theory of operation
1. The decision about a transaction is in the log of its home before any cluster commits a part (`end`). A gateway that
   has a broker's answer in hand, and then reads the logs to their ends, has seen the decision of each record in it.
2. A decision names the last stable offset of each partition at that time. Until the log says that the decision is
   carried out, the gateway shows no later one. So readers see a transaction on no cluster, or on all.
3. As with a broker's own last stable offset, everything behind it waits too, however long that takes.
4. Only answers with records of transactions need the logs. Records that are written without a transaction pass.
5. While a home's log can't be read, a decision may be unknown. For `BLIND_S` readers get no records of transactions at
   all. Then the other clusters' readers go on: a home that is away commits nothing, so nothing new is decided there.
   Transactions that this gateway knows to be committed at home stay held, until a sweep has finished them (`sweep`).
6. A leader that was replaced and has not noticed may answer from an old log, as it may answer any consumer.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

import structlog

from mesh.routing import RoutingTable
from mesh.transactions import TRANSACTIONS_TOPIC, Decision, LogPlace, TransactionLog
from services.gateway.requests.memory import Memory
from services.gateway.requests.plan import Command, MeshView
from services.gateway.requests.transactions.home import takes_part
from services.gateway.requests.transactions.log_reading import read_logs
from services.gateway.requests.transactions.sight import BLIND_S, Holds, KnownDecision
from services.gateway.requests.transactions.stable_offsets import READ_COMMITTED

READ_TIMEOUT_S: Final = 2.0
SOONEST_S, LATEST_S = 0.01, 0.25
"""After how long a reader that waits for a decision is answered, and asks again: a quarter of the time that the
decision has taken so far, within these bounds."""

log = structlog.get_logger(__name__)


def concerns(table: RoutingTable, isolation_level: int) -> bool:
    """Whether the answers to a reader may have to be held back. One cluster alone shows all or nothing by itself."""
    return isolation_level == READ_COMMITTED and len(table.clusters) > 1


def place_of(topic: str, partition: int, mesh: MeshView) -> LogPlace | None:
    route = mesh.table.route(topic)
    return None if route is None else LogPlace(route.cluster, route.upstream_topic, partition)


def known_holds(mesh: MeshView) -> Holds:
    """As of the last reading. The same value as before while no log has changed."""
    return holds_known_to(mesh.memory, mesh.table, mesh.clock())


def holds_known_to(memory: Memory, table: RoutingTable, now: float) -> Holds:
    """As `known_holds`, for callers without a view."""
    sight = memory.sight
    kept = {home: memory.transaction_logs.get(home, now) for home in table.clusters}
    logs = {home: found for home, found in kept.items() if found is not None}
    seen = {home: (blind_s := sight.blind_for(home, now)) is None or blind_s < BLIND_S for home in logs}
    return sight.holds(
        tuple((home, found.state, seen[home]) for home, found in logs.items()),
        lambda: _holds(logs, seen),
    )


def _holds(logs: Mapping[str, TransactionLog], seen: Mapping[str, bool]) -> Holds:
    by_place: dict[LogPlace, tuple[int, KnownDecision]] = {}
    for home, found in logs.items():
        for decision in (*found.decisions, *found.written) if seen[home] else found.decisions:
            _add(home, decision, by_place)
    return Holds(by_place)


def _add(home: str, decision: Decision, by_place: dict[LogPlace, tuple[int, KnownDecision]]) -> None:
    if decision.stable:
        held = KnownDecision.of(home, decision)
        for place, offset in decision.stable.items():
            if place not in by_place or offset < by_place[place][0]:
                by_place[place] = (offset, held)


def holds_now(mesh: MeshView) -> Generator[Command, Any, Holds]:
    """For all answers that are in hand when this begins."""
    sight, now = mesh.memory.sight, mesh.clock()  # a reader may have asked long ago, and waited for records since
    homes = _homes(mesh)
    asked = [home for home in homes if sight.asks(home, now)]
    logs = yield from read_logs(asked, mesh, READ_TIMEOUT_S)
    for home, found in logs.items():
        sight.read(home, now, found=found is not None)
    blind = [seconds for home in homes if (seconds := sight.blind_for(home, now)) is not None]
    holds = forget_finished(mesh)
    return Holds(holds.by_place, blind=any(seconds < BLIND_S for seconds in blind))


def forget_finished(mesh: MeshView) -> Holds:
    """The known holds; readers that waited for other decisions no longer count as waiting."""
    holds = known_holds(mesh)
    mesh.memory.sight.keep(mesh.table.clusters, (held for _, held in holds.by_place.values()))
    return holds


def _homes(mesh: MeshView) -> list[str]:
    """The clusters that have a log, and those that may have one by now: the homes of transactional ids."""
    home, by_rules = mesh.table.home, mesh.table.transaction_homes
    return [
        name
        for name, cluster in mesh.table.clusters.items()
        if takes_part(name, mesh)
        and (cluster is home or name in by_rules or mesh.clusters[name].partition_count(TRANSACTIONS_TOPIC) is not None)
    ]


def note_held(place: LogPlace, holds: Holds, mesh: MeshView) -> float:
    """Notes that a reader is held back there. Returns the seconds after which the reader may ask again."""
    found = holds.by_place.get(place)
    if found is None:
        return LATEST_S
    offset, decision = found
    sight, now = mesh.memory.sight, mesh.clock()
    seconds = sight.held(decision, now)
    if sight.must_tell(decision, now):
        log.warning(
            "readers wait for a transaction that is committed on one cluster and not yet on all",
            decision=decision.key.decode(errors="replace"),
            decided_on=decision.home,
            cluster=place.cluster,
            topic=place.topic,
            partition=place.partition,
            offset=offset,
        )
    return min(max(SOONEST_S, seconds / 4), LATEST_S)
