"""How far this router's record rules are: the last word of the worker about each, for control, /metrics and routers.

A view that the next reports build again; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from mesh.rpc import record_rules
from services.router import metrics
from services.router.forwarding.orders import Progress

MOST_PARTITIONS = 1000
"""Partitions listed for one rule: those that are furthest behind. Sums count all partitions."""
MOST_IN_REPORT = 5000
"""Partitions of all rules together; a report goes out every second."""


class ProgressBoard:
    """The last word about each rule. No I/O."""

    def __init__(
        self,
        clock: Callable[[], float],
        known: Callable[[str], record_rules.RecordRuleProgress | None] = lambda _: None,
    ) -> None:
        """`known`: what the router that ran a rule before said of it last."""
        self._clock = clock
        self._known = known
        self._last: dict[str, record_rules.RecordRuleProgress] = {}
        self._heard: dict[str, float] = {}
        self._problem = "the router's worker process starts"
        self._changed = False
        self._shown: Set[str] = frozenset()
        self._measured: dict[str, set[str]] = {}

    def heard(self, said: Progress) -> None:
        """The worker spoke of a rule."""
        rule_id = said.progress.record_rule_id
        progress = trimmed(summed(said.progress), MOST_PARTITIONS)
        before = self._last.get(rule_id)
        progress.report_time.GetCurrentTime()
        self._last[rule_id], self._heard[rule_id] = progress, self._clock()
        self._changed = self._changed or before is None or not _same(before, progress)
        self._measure(rule_id, progress, said.counts)

    def stumbled(self, problem: str) -> None:
        """The worker process ended; all of its rules wait."""
        self._problem = problem
        for progress in self._last.values():
            progress.problem = problem
        self._changed = True

    def shown(self, running: Set[str]) -> list[record_rules.RecordRuleProgress]:
        """The progress of these rules, by id. A rule that the worker has not reported yet has the reason as its
        problem.
        """
        most = MOST_IN_REPORT // max(1, len(running))
        return [trimmed(self._last.get(rule_id) or self._unspoken(rule_id), most) for rule_id in sorted(running)]

    def spoken(self, running: Set[str]) -> list[record_rules.RecordRuleProgress]:
        """The progress of the rules in `running` that the worker has reported."""
        return [self._last[rule_id] for rule_id in sorted(running & self._last.keys())]

    def _unspoken(self, rule_id: str) -> record_rules.RecordRuleProgress:
        """As far as the rule was, with the time of that word."""
        progress = record_rules.RecordRuleProgress(record_rule_id=rule_id)
        if (known := self._known(rule_id)) is not None:
            progress.CopyFrom(known)
        progress.problem = self._problem
        return progress

    def look(self, running: Set[str]) -> bool:
        """Whether there is new progress to report since the last call; forgets rules that no longer run here."""
        for rule_id in self._last.keys() - running:
            del self._last[rule_id], self._heard[rule_id]
            self._forget_metrics(rule_id)
        for rule_id, heard in self._heard.items():
            metrics.record_rule_heartbeat.labels(rule_id).set(self._clock() - heard)
        changed, self._changed = self._changed or running != self._shown, False
        self._shown = frozenset(running)
        return changed

    def _measure(self, rule_id: str, progress: record_rules.RecordRuleProgress, counts: dict[str, float]) -> None:
        metrics.record_rule_lag.labels(rule_id).set(progress.lag)
        metrics.record_rule_problem.labels(rule_id).set(bool(progress.problem))
        named = {"written": progress.records_written, "filtered": progress.records_filtered}
        for outcome, records in {**named, "dead": progress.records_dead}.items():
            metrics.record_rule_records.labels(rule_id, outcome).set(records)
        for name, value in counts.items():
            metrics.record_rule_counts[name].labels(rule_id).set(value)
        self._measured[rule_id] = self._measured.get(rule_id, set()) | counts.keys()

    def _forget_metrics(self, rule_id: str) -> None:
        for gauge in (metrics.record_rule_lag, metrics.record_rule_problem, metrics.record_rule_heartbeat):
            gauge.remove(rule_id)
        for outcome in ("written", "filtered", "dead"):
            metrics.record_rule_records.remove(rule_id, outcome)
        for name in self._measured.pop(rule_id, ()):
            metrics.record_rule_counts[name].remove(rule_id)


def summed(said: record_rules.RecordRuleProgress) -> record_rules.RecordRuleProgress:
    """The progress with its sums over all partitions."""
    progress = record_rules.RecordRuleProgress()
    progress.CopyFrom(said)
    progress.lag = sum(_behind(each) for each in said.partitions)
    progress.partition_count = len(said.partitions)
    return progress


def trimmed(said: record_rules.RecordRuleProgress, most: int) -> record_rules.RecordRuleProgress:
    """The progress with no more partitions than this: those furthest behind."""
    if len(said.partitions) <= most:
        return said
    progress = record_rules.RecordRuleProgress()
    progress.CopyFrom(said)
    furthest = sorted(said.partitions, key=_behind, reverse=True)[:most]
    del progress.partitions[:]
    progress.partitions.extend(sorted(furthest, key=lambda each: (each.topic, each.partition)))
    return progress


def _behind(partition: record_rules.PartitionProgress) -> int:
    return max(0, partition.end - partition.position)


def _same(one: record_rules.RecordRuleProgress, other: record_rules.RecordRuleProgress) -> bool:
    plain = record_rules.RecordRuleProgress()
    plain.CopyFrom(other)
    plain.report_time.CopyFrom(one.report_time)
    return one == plain
