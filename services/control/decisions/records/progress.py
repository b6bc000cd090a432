"""The progress of record rules, from the last reports of their routers. In memory; it heals with the next report."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import Gauge

from mesh.rpc import record_rules

EXPIRY = 15.0
"""Seconds of silence after which a router counts as gone, as with members."""

running_gauge = Gauge("kafka_mesh_control_record_rules_running", "Record rules that some router says to run.")


@dataclass(frozen=True, slots=True)
class _Claims:
    """The rules that one router runs."""

    router: str
    rules: frozenset[str]
    heard: float


class RecordProgress:
    """The last report about each rule."""

    def __init__(self, known: Callable[[], Container[str]], clock: Callable[[], float] = time.monotonic) -> None:
        """`known`: ids of the existing rules; control drops reports about other rules."""
        self._known = known
        self._clock = clock
        self._claims: dict[object, _Claims] = {}
        self._last: dict[str, record_rules.RecordRuleProgress] = {}

    def report(self, stream: object, router: str, said: Iterable[record_rules.RecordRuleProgress]) -> None:
        """Takes a router's report about all rules that it runs. If two routers report a rule, the later one counts."""
        known = self._known()
        name = router if router.startswith("members/") else f"members/{router}"
        fresh = {each.record_rule_id: each for each in said if each.record_rule_id in known}
        for rule_id, progress in fresh.items():
            kept = self._last[rule_id] = record_rules.RecordRuleProgress()
            kept.CopyFrom(progress)
            kept.router = name
            if not kept.HasField("report_time"):
                kept.report_time.GetCurrentTime()
        self._last = {rule_id: each for rule_id, each in self._last.items() if rule_id in known}
        self._claims[stream] = _Claims(name, frozenset(fresh), self._clock())
        running_gauge.set(len(self._runners()))

    def left(self, stream: object) -> None:
        """A router's stream has ended; its last report stays visible."""
        self._claims.pop(stream, None)
        running_gauge.set(len(self._runners()))

    def of(self, rule_id: str, *, paused: bool = False) -> record_rules.RecordRuleProgress | None:
        """The last report about a rule, with a problem if no router or several run it; None when no report came yet."""
        last = self._last.get(rule_id)
        if last is None:
            return None
        runners = self._runners().get(rule_id, [])
        progress = record_rules.RecordRuleProgress()
        progress.CopyFrom(last)
        if not runners and not paused:
            progress.problem = f"no router says that it runs it; the last one was {last.router}"
        elif len(runners) > 1:
            problem = f"{' and '.join(runners)} both say that they run it; one of them is about to stop"
            progress.problem = "; ".join(each for each in (last.problem, problem) if each)
        return progress

    def _runners(self) -> Mapping[str, list[str]]:
        oldest = self._clock() - EXPIRY
        self._claims = {stream: claims for stream, claims in self._claims.items() if claims.heard >= oldest}
        runners: dict[str, list[str]] = {}
        for claims in self._claims.values():
            for rule_id in claims.rules:
                named = runners.setdefault(rule_id, [])
                if claims.router not in named:
                    named.append(claims.router)
        return runners
