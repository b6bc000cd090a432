"""The progress of all record rules of the mesh, as their routers report it on the topic of progress. No I/O.

A view: a router that starts makes it again from the topic. Only operators' views depend on this progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator

from google.protobuf.message import DecodeError

from mesh.rpc import record_rules
from services.router import metrics

Word = tuple[bytes, bytes]
"""Key and value of a record of the topic: the last one of each key counts."""


def words_of(router: str, progress: Iterable[record_rules.RecordRuleProgress]) -> Iterator[Word]:
    """The records of one router: a sign of life, and the progress of each rule without its partitions.

    `router`: as in members/{router}. The first word names no rule: the router hears from it that it is heard.
    """
    for said in (record_rules.RecordRuleProgress(), *progress):
        word = record_rules.RecordRuleProgress()
        word.CopyFrom(said)
        word.ClearField("partitions")
        word.router = f"members/{router}"
        if not word.HasField("report_time"):
            word.report_time.GetCurrentTime()
        key = f"rule/{said.record_rule_id}" if said.record_rule_id else f"router/{router}"
        yield key.encode(), word.SerializeToString()


class MeshProgress:
    """The last word about each rule."""

    def __init__(self, router: str, known: Callable[[], Container[str]], clock: Callable[[], float]) -> None:
        """`known`: ids of the rules there are; of others nothing is kept."""
        self._router = f"members/{router}"
        self._known = known
        self._clock = clock
        self._last: dict[str, record_rules.RecordRuleProgress] = {}
        self._shown: set[tuple[str, str]] = set()
        """Labels of the metrics: rule and router."""
        self.heard_itself_at = clock()
        """When this router last heard itself; on the clock."""

    def hear(self, value: bytes | None) -> None:
        """Reads a record of the topic. A record that can't be decoded is skipped: the next record of each router comes
        soon.
        """
        try:
            word = record_rules.RecordRuleProgress.FromString(value or b"")
        except DecodeError:
            return
        if word.router == self._router:
            self.heard_itself_at = self._clock()
        if word.record_rule_id in self._known():
            self._last[word.record_rule_id] = word

    def of(self, rule_id: str) -> record_rules.RecordRuleProgress | None:
        """The last word about a rule; None where there is none."""
        return self._last.get(rule_id)

    def measure(self) -> None:
        """Brings the metrics up to date."""
        self._forget()
        now = time.time()
        metrics.mesh_record_rules.set(len(self._last))
        shown = {(rule_id, word.router) for rule_id, word in self._last.items()}
        for gone in self._shown - shown:
            for gauge in (metrics.mesh_record_rule_lag, metrics.mesh_record_rule_problem, metrics.mesh_record_rule_age):
                gauge.remove(*gone)
        self._shown = shown
        for rule_id, word in self._last.items():
            metrics.mesh_record_rule_lag.labels(rule_id, word.router).set(word.lag)
            metrics.mesh_record_rule_problem.labels(rule_id, word.router).set(bool(word.problem))
            age = max(0.0, now - word.report_time.ToNanoseconds() / 1e9)
            metrics.mesh_record_rule_age.labels(rule_id, word.router).set(age)

    def _forget(self) -> None:
        known = self._known()
        for rule_id in [each for each in self._last if each not in known]:
            del self._last[rule_id]
