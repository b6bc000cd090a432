"""The worker of one rule. Sessions hand nothing over to each other: the next one finds on the target what remains."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import structlog

from mesh.rpc import record_rules
from services.router.forwarding.connections import LARGEST_BATCH, SMALLEST_BATCH, Cluster, Setback
from services.router.forwarding.lanes import Counts, PartitionState
from services.router.forwarding.memory import Memory
from services.router.forwarding.orders import Progress, RunRule
from services.router.forwarding.rule_thread import RuleThread, Wanted, World
from services.router.forwarding.session import Session
from services.router.forwarding.target import Target
from services.router.forwarding.tasks import Judging, Task, task_of
from services.router.forwarding.tracing import stamp_of

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

STATES_SECONDS = 0.5
"""Seconds between two reports of the partitions' progress."""

log = structlog.get_logger(__name__)


class Worker(RuleThread):
    """Runs a rule from `start` to `stop`."""

    def __init__(self, order: RunRule, world: World, judging: Judging, tracer: Tracer | None = None) -> None:
        super().__init__(order, world, "rule")
        self._stamp_of = partial(stamp_of, tracer=tracer)
        self._judging = judging
        self._states: list[PartitionState] = []
        self._counts = Counts()
        self._running_revision = 0
        self._largest_batch = LARGEST_BATCH
        self._groups_synced_at: float | None = None
        self._groups_in_use = 0
        self._last_answer = self._last_commit = time.monotonic()

    def progress(self) -> Progress:
        counts, states, now = self._counts, self._states, time.monotonic()
        said = record_rules.RecordRuleProgress(
            record_rule_id=self.rule_id,
            revision=self._running_revision,
            partitions=[
                record_rules.PartitionProgress(
                    topic=each.source.topic, partition=each.source.number, position=each.position, end=each.end
                )
                for each in states
            ],
            records_written=counts.written,
            records_filtered=counts.filtered,
            records_dead=counts.dead,
            problem=self._problem,
        )
        if self._groups_synced_at is not None:
            said.groups_synced_time.FromMilliseconds(int(1000 * self._groups_synced_at))
        return Progress(
            said,
            {
                "record_rule_groups_in_use": self._groups_in_use,
                "record_rule_been_there": counts.been_there,
                "record_rule_bytes": counts.bytes,
                "record_rule_transactions": counts.transactions,
                "record_rule_setbacks": self._setbacks,
                "record_rule_source_silence_seconds": now - self._last_answer,
                "record_rule_commit_age_seconds": now - self._last_commit,
            },
        )

    def _moved(self) -> int:
        return self._counts.transactions

    def _settle(self, error: Exception) -> bool:
        if isinstance(error, Setback):
            self._problem = str(error)
            if error.too_large:
                self._largest_batch = max(self._largest_batch // 2, SMALLEST_BATCH)
            log.warning("a record rule waits", rule=self.rule_id, problem=self._problem)
        else:
            self._problem = f"a fault of the worker: {error!r}"
            log.exception("a record rule failed", rule=self.rule_id)
        return False

    def _session(self, wanted: Wanted) -> None:
        """Setback: the rule could not continue."""
        if wanted.order.paused:
            self._running_revision, self._problem = wanted.order.revision, ""
            self._changed.wait()
            return
        task = self._task(wanted)
        source = self._cluster(wanted, task.source)
        targets: list[Target] = []
        session = None
        try:
            targets += [self._target(wanted, name) for name in task.targets]
            session = Session(wanted.order, task, source, targets, self._counts)
            session.stamp_of = self._stamp_of
            session.open()
            self._running_revision = wanted.order.revision
            log.info("rule runs", rule=self.rule_id, revision=wanted.order.revision, partitions=len(session.lanes))
            looked = 0.0
            while not self._changed.is_set():
                session.turn()
                self._last_answer, self._last_commit = session.last_answer, session.last_commit
                self._problem = session.problem
                self._groups_synced_at = session.groups_synced_at or self._groups_synced_at
                self._groups_in_use = session.groups_in_use
                if time.monotonic() - looked > STATES_SECONDS:
                    self._states = session.states()
                    looked = time.monotonic()
        finally:
            if session is not None:
                if session.lanes:
                    self._states = session.states()  # of a rule that stops before its first look, too
                session.close()
            else:
                for target in targets:
                    target.close()

    def _task(self, wanted: Wanted) -> Task:
        try:
            return task_of(wanted.order.spec, self._judging)
        except ValueError as error:
            raise Setback(f"the rule can't be carried out: {error}") from error

    def _cluster(self, wanted: Wanted, name: str) -> Cluster:
        if name not in wanted.world.clusters:
            raise Setback(f"cluster {name!r} is not registered (known: {', '.join(sorted(wanted.world.clusters))})")
        return Cluster(wanted.world.clusters[name], self.rule_id)

    def _target(self, wanted: Wanted, name: str) -> Target:
        transactional_id = f"mesh.record-rule.{wanted.world.mesh_id}.{self.rule_id}"
        memory = Memory(wanted.world.mesh_id, self.rule_id, wanted.order.created)
        return Target(self._cluster(wanted, name), memory, transactional_id, self._largest_batch)

    def _forget_all(self) -> None:
        """Once: where a target is away, what it remembers stays, and does no harm."""
        wanted = self._wanted
        try:
            for name in self._task(wanted).targets:
                target = self._target(wanted, name)
                try:
                    target.take_over()
                    target.commit(target.memory.forgetting())
                finally:
                    target.close()
        except Setback as error:
            log.warning(
                "a record rule is removed, and its positions stay on the target", rule=self.rule_id, problem=str(error)
            )
