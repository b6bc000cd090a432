"""The worker of one copy: a thread that runs one session after another, as the worker of a mirror does.

A copy that is broken for good says so, and why: control ends its move.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass

import structlog

from mesh.rpc import record_rules
from mesh.topic_logs.brokers import Brokers, CopySetbackError, TooLargeError
from mesh.topic_logs.records import JOINED
from services.router.copying.copier import BrokenCopyError, Copier, CopyOrder, PartitionCopy
from services.router.copying.pace import Pace
from services.router.forwarding.orders import Progress, RunRule
from services.router.forwarding.worker import LONGEST_PAUSE, SHORTEST_PAUSE, World

LOOK_S = 0.1
"""Seconds between two looks whether the copy is to stop."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    order: RunRule
    world: World


class CopyWorker:
    """Copies from `start` to `stop`."""

    def __init__(self, order: RunRule, world: World) -> None:
        self.rule_id = order.spec.record_rule_id
        self._thread = threading.Thread(target=self._run, name=f"copy-{self.rule_id}", daemon=True)
        self._wanted = _Wanted(order, world)
        self._changed = threading.Event()
        self._stopping = False
        self._problem = ""
        self._broken = False
        self._joins = JOINED
        """As many bytes as the target takes: it may take less than brokers do by default."""
        self._states: dict[int, PartitionCopy] = {}
        self._records = self._bytes = self._setbacks = 0

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end that `stop` asked for."""
        self._thread.join(timeout)

    def want(self, order: RunRule | None, world: World) -> None:
        """From now on this; no order: the one there is, in another world."""
        wanted = _Wanted(order or self._wanted.order, world)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def stop(self, *, forget: bool = False) -> None:
        """Ends as soon as no write is on its way. The copy is all that there is, so there is nothing to forget."""
        self._stopping = True
        self._changed.set()

    def progress(self) -> Progress:
        """How far the copy is; from any thread."""
        states, now = dict(self._states), time.monotonic()
        topic = self._wanted.order.spec.copy.topic
        begun = bool(states) and all(each.is_open for each in states.values())
        said = record_rules.RecordRuleProgress(
            record_rule_id=self.rule_id,
            revision=self._wanted.order.revision,
            partitions=[
                record_rules.PartitionProgress(topic=topic, partition=number, position=each.position, end=each.end)
                for number, each in sorted(states.items())
            ],
            records_written=self._records + sum(each.records for each in states.values()),
            problem=self._problem,
            broken=self._broken,
            tail_ms=round(1000 * max(each.behind_s(now) for each in states.values())) if begun else None,
        )
        return Progress(
            said,
            {
                "record_rule_bytes": self._bytes + sum(each.bytes for each in states.values()),
                "record_rule_setbacks": self._setbacks,
                "record_rule_source_silence_seconds": max((now - each.level_at for each in states.values()), default=0),
            },
        )

    def _run(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            self._changed.clear()
            if self._stopping:  # asked behind `clear`: who sets both is never overlooked
                return
            before = self._records
            try:
                asyncio.run(self._session(self._wanted))
                pause = SHORTEST_PAUSE
                continue
            except (BrokenCopyError, CopySetbackError) as error:
                if isinstance(error, TooLargeError) and self._joins:
                    self._joins //= 4
                    continue
                self._problem = str(error)
                log.warning("a copy waits", rule=self.rule_id, problem=self._problem)
                if isinstance(error, BrokenCopyError):
                    self._broken = True
                    self._changed.wait()
                    self._broken = False
                    continue
            except Exception as error:  # a fault of ours in one copy ends neither it nor the others
                self._problem = f"a fault of the worker: {error!r}"
                log.exception("a copy failed", rule=self.rule_id)
            self._setbacks += 1
            pause = SHORTEST_PAUSE if self._records > before else min(2 * pause, LONGEST_PAUSE)
            self._changed.wait(pause)

    async def _session(self, wanted: _Wanted) -> None:
        """One session, until the order changes."""
        spec, rule_id = wanted.order.spec.copy, self.rule_id
        order = CopyOrder(f"{wanted.world.mesh_id} {rule_id} {wanted.order.created}", spec.topic, spec.target_topic)
        clusters = wanted.world.clusters
        for name in (spec.source_cluster, spec.target_cluster):
            if name not in clusters:
                raise CopySetbackError(f"cluster {name!r} is not registered (known: {', '.join(sorted(clusters))})")
        client_id = f"mesh.copy.{rule_id}"
        async with (
            Brokers(clusters[spec.source_cluster], client_id) as source,
            Brokers(clusters[spec.target_cluster], client_id) as target,
        ):
            copier = Copier(order, source, target, Pace(spec.bytes_per_second), self._joins)
            self._states = copier.progress
            running = asyncio.create_task(copier.run())
            try:
                while not self._changed.is_set():
                    done, _ = await asyncio.wait([running], timeout=LOOK_S)
                    if done:
                        running.result()
                        return
                    if copier.has_gone_on:
                        self._problem = ""
            finally:
                running.cancel()
                await asyncio.wait([running])
                self._records += sum(each.records for each in copier.progress.values())
                self._bytes += sum(each.bytes for each in copier.progress.values())
                self._states = {number: _at(each) for number, each in copier.progress.items()}


def _at(of: PartitionCopy) -> PartitionCopy:
    """The place alone: what the session has counted is in the worker's sums."""
    return PartitionCopy(of.position, of.end, level_at=of.level_at)
