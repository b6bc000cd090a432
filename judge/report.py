"""The report of a run, as JSON and as one HTML page: each anomaly with the shortest history that shows it."""

from __future__ import annotations

import html
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judge.anomalies import RULES, Anomaly
from judge.history import History, Kind, Mark, Moved, Operation, Poll, Send, Step, Taken, as_json
from judge.shrinking import Shrinking, around

SHOWN = 3
"""Findings of one rule that are shrunk and shown; the others are counted."""
SHRINKING_S = 120.0
"""Bound of the work for all witnesses of a report. The findings that come later are shown with all their operations."""
INVOLVED, LINE = 8, 500
"""Bounds of a failure in words: operations of one finding, characters of one line."""
STYLE = """
body{font:15px/1.5 system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%;font-size:13px}
td,th{border-bottom:1px solid #ddd;padding:.25rem .5rem;text-align:left;vertical-align:top}
.bad{color:#b00020}.fine{color:#1b7a3d}.fault td{background:#fff3e0}code{font-size:12px;word-break:break-word}"""


@dataclass(frozen=True, slots=True)
class Case:
    anomaly: Anomaly
    witness: History
    around: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Report:
    history: History
    found: tuple[Anomaly, ...]

    @property
    def bad(self) -> list[Anomaly]:
        return [anomaly for anomaly in self.found if not anomaly.allowed]

    def cases(self) -> Iterator[Case]:
        by_index = {each.index: each for each in self.history.operations}
        seen: Counter[str] = Counter()
        shrinking, deadline = Shrinking(self.history), time.monotonic() + SHRINKING_S
        for anomaly in (*self.bad, *(each for each in self.found if each.allowed)):
            seen[anomaly.rule] += 1
            if seen[anomaly.rule] <= SHOWN:
                witness = shrinking.shrunk(anomaly, deadline - time.monotonic())
                near = around(self.history, witness)
                yield Case(anomaly, witness, tuple(by_index[index] for index in near))

    def summary(self) -> str:
        """For the terminal."""
        counts = Counter(str(each.kind) for each in self.history.operations)
        lines = [
            f"seed {self.history.seed}, {self.history.system}: "
            + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        ]
        lines += [f"  {rule}: {told}" for rule, told in self._by_rule().items()]
        lines.append(f"{len(self.bad)} anomalies" if self.bad else "clean: no anomaly that Kafka rules out")
        return "\n".join(lines)

    def failures(self) -> str:
        """Each anomaly that Kafka rules out, to be read where the report is gone: its operations, and the faults near.

        The first findings of each rule are whole; the others are counted.
        """
        lines: list[str] = []
        by_index = {each.index: each for each in self.history.operations}
        for rule, found in self._bad_by_rule().items():
            lines.append(f"{rule}, {len(found)} times")
            for anomaly in found[:SHOWN]:
                shown = self.history.only(anomaly.operations[:INVOLVED])
                near = [each for each in around(self.history, shown) if by_index[each].kind is not Kind.CRASH][
                    :INVOLVED
                ]
                lines.append(f"  {anomaly.text[:LINE]}")
                lines += [f"    {_line(each)}"[:LINE] for each in shown.operations if each.kind is not Kind.SWEEP]
                lines += [f"    near: {_line(by_index[index])}"[:LINE] for index in near[:INVOLVED]]
        return "\n".join(lines)

    def _bad_by_rule(self) -> dict[str, list[Anomaly]]:
        found: dict[str, list[Anomaly]] = defaultdict(list)
        for anomaly in self.bad:
            found[anomaly.rule].append(anomaly)
        return found

    def _by_rule(self) -> dict[str, str]:
        found: dict[str, list[Anomaly]] = defaultdict(list)
        for anomaly in self.found:
            found[anomaly.rule].append(anomaly)
        return {
            rule: f"{sum(not each.allowed for each in those)} (and {sum(each.allowed for each in those)} allowed); "
            f"first: {those[0].text}" + _reason(those)
            for rule, those in found.items()
        }

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.history.write(folder / "history.jsonl")
        cases = list(self.cases())
        (folder / "report.json").write_text(json.dumps(self._as_json(cases), indent=1), encoding="utf-8")
        (folder / "report.html").write_text(self._page(cases), encoding="utf-8")

    def _as_json(self, cases: Sequence[Case]) -> dict[str, Any]:
        return {
            "seed": self.history.seed,
            "system": self.history.system,
            "operations": Counter(str(each.kind) for each in self.history.operations),
            "clean": not self.bad,
            "counts": Counter(anomaly.rule for anomaly in self.bad),
            "allowed": Counter(anomaly.rule for anomaly in self.found if anomaly.allowed),
            "cases": [
                {
                    "rule": case.anomaly.rule,
                    "allowed": case.anomaly.allowed,
                    "text": case.anomaly.text,
                    "history": [as_json(each) for each in case.witness.operations],
                    "around": [as_json(each) for each in case.around],
                }
                for case in cases
            ],
        }

    def _page(self, cases: Sequence[Case]) -> str:
        says = {rule.name: rule.says for rule in RULES}
        verdict = f'<p class="bad">{len(self.bad)} anomalies</p>' if self.bad else '<p class="fine">clean</p>'
        parts = [
            f"<!doctype html><html lang=en><meta charset=utf-8><title>Judgement of {html.escape(self.history.system)}",
            f"</title><style>{STYLE}</style><h1>{html.escape(self.history.system)}</h1>",
            f"<p>Seed {self.history.seed}, {len(self.history.operations)} operations.</p>{verdict}",
        ]
        for case in cases:
            anomaly = case.anomaly
            parts.append(
                f"<h2 class={'fine' if anomaly.allowed else 'bad'}>{anomaly.rule}"
                f"{' (allowed)' if anomaly.allowed else ''}</h2><p>{html.escape(says[anomaly.rule])}</p>"
                f"{f'<p>{html.escape(anomaly.why)}</p>' if anomaly.why else ''}"
                f"<p><b>{html.escape(anomaly.text)}</b></p>{_table(case)}"
            )
        counts = "".join(f"<tr><td>{rule}<td>{html.escape(told)}" for rule, told in self._by_rule().items())
        parts.append(f"<h2>All rules that found something</h2><table><tr><th>rule<th>findings{counts}</table></html>")
        return "".join(parts)


def _reason(found: Sequence[Anomaly]) -> str:
    return next((f" ({each.why})" for each in found if each.why), "")


def _line(operation: Operation) -> str:
    """An operation in words: what its row of the page says."""
    told = (
        f"{operation.index} {operation.process} {operation.kind} {operation.outcome}, "
        f"{operation.start:.3f} s to {operation.end:.3f} s"
    )
    via = f", through {operation.via}" if operation.via else ""
    revision = f", revision {operation.revision}" if operation.revision else ""
    steps = "".join(f"; {_step(step)}" for step in operation.steps[:INVOLVED])
    return f"{told}{via}{revision}{f'; {operation.note}' if operation.note else ''}{steps}"


def _table(case: Case) -> str:
    near = {each.index for each in case.around}
    rows = sorted((*case.witness.operations, *case.around), key=lambda each: each.start)
    head = "<tr><th>no.<th>from<th>to<th>process<th>what<th>outcome<th>by way of<th>revision<th>steps"
    return f"<table>{head}{''.join(_row(each, is_near=each.index in near) for each in rows)}</table>"


def _row(each: Operation, *, is_near: bool) -> str:
    steps = " ".join(map(_step, each.steps[:20])) + (" ..." if len(each.steps) > 20 else "")
    cells = (
        str(each.index),
        f"{each.start:.3f}",
        f"{each.end:.3f}",
        f"{each.process} {each.client}",
        each.kind,
        each.outcome,
        each.via,
        str(each.revision or ""),
        f"{steps} {each.note}",
    )
    return f"<tr{' class=fault' if is_near else ''}>" + "".join(
        f"<td><code>{html.escape(cell)}</code>" for cell in cells
    )


def _step(step: Step) -> str:
    match step:
        case Send(place, value, offset):
            return f"send {value} to {place}" + ("" if offset is None else f" at {offset}")
        case Poll(place, records):
            shown = ", ".join(f"{offset}:{value}" for offset, value in records[:12])
            return f"poll {place} [{shown}{' ...' if len(records) > 12 else ''}]"
        case Taken(place, records):
            shown = ", ".join(f"{offset}:{value} (no. {count})" for offset, value, count in records[:12])
            return f"take {place} [{shown}{' ...' if len(records) > 12 else ''}]"
        case Mark(group, place, offset):
            return f"{group} {place} {offset}"
        case Moved(topic, target):
            return f"{topic} to {target}"
