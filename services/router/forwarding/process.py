"""The router's child process that carries out record rules, one thread for each.

It reads orders from stdin and writes its progress to stdout (`orders`); its log goes to stderr. It ends with its
parent: when stdin does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from mesh.tracing import TracingSettings, tracer_for
from services.router.copying.worker import CopyWorker
from services.router.forwarding.orders import (
    LARGEST_LINE,
    Clusters,
    Order,
    RemoveRule,
    Report,
    RuleEnded,
    RunRule,
    Spans,
    StopRule,
    order_of,
    report_line,
)
from services.router.forwarding.rule_thread import RuleThread, World
from services.router.forwarding.tasks import Judging
from services.router.forwarding.worker import Worker

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

REPORT_SECONDS = 1.0
STOP_TIMEOUT = 3.0
"""Seconds that workers get to end their transactions when the router is gone."""


class Foreman:
    """Gives orders to workers and their reports to the router."""

    def __init__(
        self, judging: Judging, tell: Callable[[Report], None], counts: SpanCounts, tracer: Tracer | None = None
    ) -> None:
        """`tracer`: None if nothing is traced; `counts`: of its spans."""
        self._judging = judging
        self._counts = counts
        self._tracer = tracer
        self._tell = tell
        self._world = World()
        self._workers: dict[str, RuleThread] = {}
        self._ended = threading.Event()

    def obey(self, order: Order) -> None:
        """Takes an order; returns at once, but for a rule that has to end."""
        match order:
            case Clusters():
                self._world = World(order.mesh_id, {each.cluster_name: each for each in order.clusters})
                for worker in self._workers.values():
                    worker.want(None, self._world)
            case RunRule():
                rule_id = order.spec.record_rule_id
                if rule_id in self._workers:
                    self._workers[rule_id].want(order, self._world)
                else:
                    worker = self._workers[rule_id] = self._worker_for(order)
                    worker.start()
            case StopRule():
                self._end(order.rule_id, forget=False)
            case RemoveRule():
                self._end(order.rule_id, forget=True)

    def report(self) -> None:
        """Reports the progress of all rules."""
        for worker in list(self._workers.values()):
            self._tell(worker.progress())
        if spans := self._counts.taken():
            self._tell(Spans(spans))

    def report_on(self) -> None:
        """Reports the progress again and again, until `end_all`."""
        while not self._ended.wait(REPORT_SECONDS):
            self.report()

    def end_all(self) -> None:
        """Stops all workers, within a bound."""
        self._ended.set()
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.join(STOP_TIMEOUT)

    def _worker_for(self, order: RunRule) -> RuleThread:
        if order.spec.WhichOneof("kind") == "copy":
            return CopyWorker(order, self._world)
        return Worker(order, self._world, self._judging, self._tracer)

    def _end(self, rule_id: str, *, forget: bool) -> None:
        worker = self._workers.pop(rule_id, None)
        if worker is None:
            self._tell(RuleEnded(rule_id))
            return
        worker.stop(forget=forget)
        threading.Thread(target=self._tell_end, args=(worker,), daemon=True).start()

    def _tell_end(self, worker: RuleThread) -> None:
        worker.join()
        self._tell(RuleEnded(worker.rule_id))


class SpanCounts:
    """Spans by outcome since the last report."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, outcome: str, spans: int) -> None:
        with self._lock:
            self._counts[outcome] = self._counts.get(outcome, 0) + spans

    def taken(self) -> dict[str, int]:
        with self._lock:
            taken, self._counts = self._counts, {}
        return taken


def serve(orders: BinaryIO, reports: BinaryIO, judging: Judging, tracing: TracingSettings) -> None:
    """Obeys until there are no more orders."""
    writing = threading.Lock()

    def tell(report: Report) -> None:
        with writing:
            reports.write(report_line(report))
            reports.flush()

    counts = SpanCounts()
    tracer = tracer_for(tracing, "router", f"record-rules-{os.getpid()}", counts.add)
    foreman = Foreman(judging, tell, counts, tracer)
    threading.Thread(target=foreman.report_on, name="reports", daemon=True).start()
    try:
        while line := orders.readline(LARGEST_LINE):
            foreman.obey(order_of(line))
    finally:
        foreman.end_all()
        if tracer is not None:
            tracer.stop()
