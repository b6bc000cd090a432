"""The worker of one rule: a thread that runs one session after another, and never ends by itself.

A new order ends the session, too: the next session begins with the new order. Sessions hand nothing over to each other:
the next session finds on the target what remains to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from mesh.rpc import record_rules, routing
from services.router.forwarding.connections import LARGEST_BATCH, SMALLEST_BATCH, Cluster, Setback
from services.router.forwarding.lanes import Counts, PartitionState
from services.router.forwarding.memory import Memory
from services.router.forwarding.orders import Progress, RunRule
from services.router.forwarding.session import Session
from services.router.forwarding.target import Target
from services.router.forwarding.tasks import Judging, Task, task_of

SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds between two sessions: doubled with each setback, until one moves something."""
STATES_SECONDS = 0.5
"""Seconds between two reports of the partitions' progress."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class World:
    """The facts about the mesh that workers know."""

    mesh_id: str = ""
    clusters: Mapping[str, routing.ClusterSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The task of the worker; replaced as a whole."""

    order: RunRule
    world: World


class Worker:
    """Runs a rule from `start` to `stop`."""

    def __init__(self, order: RunRule, world: World, judging: Judging) -> None:
        self.rule_id = order.spec.record_rule_id
        self._thread = threading.Thread(target=self._run, name=f"rule-{self.rule_id}", daemon=True)
        self._judging = judging
        self._wanted = _Wanted(order, world)
        self._changed = threading.Event()
        self._stopping = False
        self._forget = False
        self._problem = ""
        self._states: list[PartitionState] = []
        self._counts = Counts()
        self._running_revision = 0
        self._largest_batch = LARGEST_BATCH
        self._groups_synced_at: float | None = None
        self._groups_in_use = 0
        self._last_answer = self._last_commit = time.monotonic()

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
        """Ends when the transaction is over. `forget`: the rule is no more, and its positions go."""
        self._forget = forget
        self._stopping = True
        self._changed.set()

    def progress(self) -> Progress:
        """How far it is; from any thread."""
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
                "record_rule_setbacks": counts.setbacks,
                "record_rule_source_silence_seconds": now - self._last_answer,
                "record_rule_commit_age_seconds": now - self._last_commit,
            },
        )

    def _run(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            self._changed.clear()
            if self._stopping:  # asked behind `clear`: who sets both is never overlooked
                break
            wanted, before = self._wanted, self._counts.transactions
            try:
                if wanted.order.paused:
                    self._running_revision, self._problem = wanted.order.revision, ""
                    self._changed.wait()
                else:
                    self._session(wanted)
                pause = SHORTEST_PAUSE
                continue
            except Setback as error:
                self._problem = str(error)
                if error.too_large:
                    self._largest_batch = max(self._largest_batch // 2, SMALLEST_BATCH)
                log.warning("a record rule waits", rule=self.rule_id, problem=self._problem)
            except Exception as error:  # a fault of ours in one rule ends neither it nor the others
                self._problem = f"a fault of the worker: {error!r}"
                log.exception("a record rule failed", rule=self.rule_id)
            self._counts.setbacks += 1
            pause = SHORTEST_PAUSE if self._counts.transactions > before else min(2 * pause, LONGEST_PAUSE)
            self._changed.wait(pause)
        if self._forget:
            self._forget_all(self._wanted)

    def _session(self, wanted: _Wanted) -> None:
        """One session, until the order changes. Setback: the rule could not continue."""
        task = self._task(wanted)
        source = self._cluster(wanted, task.source)
        targets: list[Target] = []
        session = None
        try:
            targets += [self._target(wanted, name) for name in task.targets]
            session = Session(wanted.order, task, source, targets, self._counts)
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

    def _task(self, wanted: _Wanted) -> Task:
        try:
            return task_of(wanted.order.spec, self._judging)
        except ValueError as error:
            raise Setback(f"the rule can't be carried out: {error}") from error

    def _cluster(self, wanted: _Wanted, name: str) -> Cluster:
        if name not in wanted.world.clusters:
            raise Setback(f"cluster {name!r} is not registered (known: {', '.join(sorted(wanted.world.clusters))})")
        return Cluster(wanted.world.clusters[name], self.rule_id)

    def _target(self, wanted: _Wanted, name: str) -> Target:
        transactional_id = f"mesh.record-rule.{wanted.world.mesh_id}.{self.rule_id}"
        memory = Memory(wanted.world.mesh_id, self.rule_id, wanted.order.created)
        return Target(self._cluster(wanted, name), memory, transactional_id, self._largest_batch)

    def _forget_all(self, wanted: _Wanted) -> None:
        """Once: where a target is away, what it remembers stays, and does no harm."""
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
