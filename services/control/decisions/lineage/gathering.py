"""The leading control gathers the edges of clients, record rules and sidecars every few seconds, and keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from services.control.decisions.members.members import Members
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.lineage.edges import Committed, Edge, edges_of_clients, edges_of_rules
from services.control.domain.lineage.memory import Look, Memory
from services.control.steady_clock import Clock
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import Journal
from services.control.store.lineage import LineageTables

LOOK_EVERY_S: Final = 5.0
"""Gateways report changed clients every 3 s: a client that stays for so long is seen."""

log = structlog.get_logger(__name__)
edges_gauge = Gauge(
    "kafka_mesh_control_lineage_edges",
    "Edges of lineage in the last look: those that control keeps, and those beyond its bound (left_out).",
    ["kind"],
)
seconds_gauge = Gauge("kafka_mesh_control_lineage_look_seconds", "Time that the last look for lineage took.")
rows_total = Counter("kafka_mesh_control_lineage_rows_total", "Rows of lineage that were stored.")
forgotten_total = Counter(
    "kafka_mesh_control_lineage_forgotten_edges_total", "Edges of lineage that became too old, or made room for others."
)


class Gathering:
    """Takes the looks, and stores what they change."""

    def __init__(
        self,
        journal: Journal,
        members: Members,
        record_progress: RecordProgress,
        sidecars: Sidecars,
        tables: LineageTables,
        committed: Callable[[], Committed],
        clock: Clock,
        most_edges: int,
        kept_days: int,
    ) -> None:
        """`committed`: the topics of which each group has offsets; empty if nobody samples them."""
        self._journal = journal
        self._members = members
        self._record_progress = record_progress
        self._sidecars = sidecars
        self._tables = tables
        self._committed = committed
        self._clock = clock
        self._memory = Memory(most_edges, timedelta(days=kept_days))
        self._problem = ""

    async def run(self) -> None:
        """Looks until cancelled; a look that takes longer than the interval delays the next one."""
        if not self._memory.most:
            return
        loop = asyncio.get_running_loop()
        is_recalled = False
        while True:
            began = loop.time()
            try:
                if not is_recalled:  # the rows of the control that led before
                    self._memory.recall(await self._tables.youngest(self._memory.most), self._clock())
                    is_recalled = True
                await self._look()
                self._tell("")
            except StoreUnavailableError as error:
                is_recalled = False  # what was not stored is seen again
                self._tell(str(error))
            took = loop.time() - began
            seconds_gauge.set(took)
            await asyncio.sleep(max(0.0, LOOK_EVERY_S - took))

    async def forget(self) -> None:
        """Deletes the edges that are too old: also those of a bound that was larger."""
        await self._tables.forget(self._clock() - self._memory.kept_for)

    async def _look(self) -> None:
        clients = list(self._members.client_reports().values())
        committed, sidecars = self._committed(), self._sidecars.names()
        rules = list(self._journal.view.record_rules.values())
        progress = {each.rule_id: said for each in rules if (said := self._record_progress.of(each.rule_id))}

        def edges() -> Iterator[Edge]:
            yield from edges_of_clients(clients, committed, sidecars)
            yield from edges_of_rules(rules, progress)

        now = self._clock()
        changes = await asyncio.to_thread(lambda: self._memory.look(edges(), now))
        look = Look(now, len(self._memory), changes.left_out, self._why_not_all())
        await self._tables.store(changes.written, changes.deleted, look)
        rows_total.inc(len(changes.written))
        forgotten_total.inc(len(changes.deleted))
        edges_gauge.labels("kept").set(look.edges)
        edges_gauge.labels("left_out").set(look.left_out)

    def _why_not_all(self) -> str:
        return "; ".join(
            f"gateway {each.gateway} does not list all of its clients: {each.connections} connections are missing"
            for each in self._members.unlisted()
        )

    def _tell(self, problem: str) -> None:
        if problem and not self._problem:
            log.warning("lineage is not gathered", reason=problem)
        elif self._problem and not problem:
            log.info("lineage is gathered again")
        self._problem = problem
