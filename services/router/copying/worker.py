"""The worker of one copy. A copy that is broken for good says so, and why: control ends its move."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import structlog

from mesh.rpc import record_rules
from mesh.stitches.codec import part_from_proto
from mesh.topic_logs.brokers import Brokers, CopySetbackError, TooLargeError
from mesh.topic_logs.pace import Pace
from mesh.topic_logs.parts import PartedLog, Source
from mesh.topic_logs.records import JOINED
from services.router.copying.copier import BrokenCopyError, Copier, CopyOrder, PartitionCopy
from services.router.forwarding.orders import Progress, RunRule
from services.router.forwarding.rule_thread import RuleThread, Wanted, World

LOOK_S = 0.1
"""Seconds between two looks whether the copy is to stop."""

log = structlog.get_logger(__name__)


class CopyWorker(RuleThread):
    """Copies from `start` to `stop`."""

    def __init__(self, order: RunRule, world: World) -> None:
        super().__init__(order, world, "copy")
        self._broken = False
        self._joins = JOINED
        """As many bytes as the target takes: it may take less than brokers do by default."""
        self._states: dict[int, PartitionCopy] = {}
        self._records = self._bytes = 0

    def progress(self) -> Progress:
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

    def _moved(self) -> int:
        return self._records

    def _settle(self, error: Exception) -> bool:
        if isinstance(error, TooLargeError) and self._joins:
            self._joins //= 4
            return True
        if not isinstance(error, BrokenCopyError | CopySetbackError):
            self._problem = f"a fault of the worker: {error!r}"
            log.exception("a copy failed", rule=self.rule_id)
            return False
        self._problem = str(error)
        log.warning("a copy waits", rule=self.rule_id, problem=self._problem)
        if isinstance(error, BrokenCopyError):
            self._broken = True
            self._changed.wait()
            self._broken = False
            return True
        return False

    def _forget_all(self) -> None:
        """The copy is all that there is."""

    def _session(self, wanted: Wanted) -> None:
        asyncio.run(self._copied(wanted))

    async def _copied(self, wanted: Wanted) -> None:
        spec, rule_id = wanted.order.spec.copy, self.rule_id
        order = CopyOrder(f"{wanted.world.mesh_id} {rule_id} {wanted.order.created}", spec.topic, spec.target_topic)
        clusters = wanted.world.clusters
        parts = [part_from_proto(each) for each in spec.parts]
        names = dict.fromkeys([spec.source_cluster, spec.target_cluster, *(part.cluster for part in parts)])
        for name in names:
            if name not in clusters:
                raise CopySetbackError(f"cluster {name!r} is not registered (known: {', '.join(sorted(clusters))})")
        async with AsyncExitStack() as connections:
            brokers = {
                name: await connections.enter_async_context(Brokers(clusters[name], f"mesh.copy.{rule_id}"))
                for name in names
            }
            target = brokers[spec.target_cluster]
            source: Source = PartedLog(parts, brokers) if parts else brokers[spec.source_cluster]
            copier = Copier(order, source, target, Pace(spec.bytes_per_second), self._joins)
            running = asyncio.create_task(copier.run())
            try:
                while not self._changed.is_set():
                    done, _ = await asyncio.wait([running], timeout=LOOK_S)
                    if copier.is_open:  # until then, what the session before has seen is the last word
                        self._states = copier.progress
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
                if copier.is_open:
                    self._states = {number: _at(each) for number, each in copier.progress.items()}


def _at(of: PartitionCopy) -> PartitionCopy:
    """The place alone: what the session has counted is in the worker's sums."""
    return PartitionCopy(of.position, of.end, level_at=of.level_at)
