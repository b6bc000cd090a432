"""The findings of a replay, in groups: as text for people, as JSON for programs."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from judge.replay.comparing import Comparison, Difference, Missing
from judge.replay.conversation import Conversation, Exchange
from judge.replay.frames import Answer
from judge.replay.logs import differences as log_differences
from judge.replay.logs import logs
from judge.replay.record_batches import Stored
from judge.replay.rules import RULES, Rule
from judge.replay.side import Outcome, Refusal, Side

SHOWN = 300
"""Characters of one value in a report."""
CODES = "ErrorCode"
WHOLE = "the whole answer"


@dataclass(frozen=True, slots=True)
class Finding:
    recording: str
    exchange: int
    connection: int
    api: str
    version: int
    difference: Difference
    request: Any

    @property
    def group(self) -> tuple[str, str, str, str]:
        path = self.difference.path
        if path.endswith(CODES):
            return self.api, path, str(self.difference.a), str(self.difference.b)
        return self.api, path, _kind(self.difference.a), _kind(self.difference.b)

    def to_json(self) -> dict[str, Any]:
        difference = self.difference
        return {
            "recording": self.recording,
            "exchange": self.exchange,
            "connection": self.connection,
            "api": self.api,
            "version": self.version,
            "path": difference.path,
            "place": difference.place,
            "a": plain(difference.a),
            "b": plain(difference.b),
            "request": plain(self.request),
        }


@dataclass(slots=True)
class Verdict:
    findings: list[Finding] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)
    """Answers, by API and version."""
    left_out: int = 0
    retries: dict[str, int] = field(default_factory=dict)

    def add(self, recording: str, conversation: Conversation, a: Side, b: Side, rules: Sequence[Rule] = RULES) -> None:
        self.left_out += len(conversation.left_out)
        for side in (a, b):
            self.retries[side.name] = self.retries.get(side.name, 0) + side.retries
        asked = [exchange for exchange in conversation.exchanges if exchange.recorded is not None]
        for exchange in asked:
            self.compared[exchange.request.title] += 1
            for difference in _of_exchange(exchange, a, b, rules):
                self._found(recording, exchange, difference, a)
        polls = [exchange for exchange in asked if exchange.request.api in ("Fetch", "ShareFetch")]
        for difference in log_differences(logs(a, polls), logs(b, polls)):
            self._found(recording, polls[0], difference, a)

    def _found(self, recording: str, exchange: Exchange, difference: Difference, a: Side) -> None:
        request = exchange.request
        asked = a.asked_message(exchange) or request.body
        self.findings.append(
            Finding(recording, exchange.number, exchange.connection, request.api, request.version, difference, asked)
        )

    @property
    def groups(self) -> dict[tuple[str, str, str, str], list[Finding]]:
        found: dict[tuple[str, str, str, str], list[Finding]] = {}
        for finding in self.findings:
            found.setdefault(finding.group, []).append(finding)
        return found

    def text(self) -> str:
        return "\n".join(self._lines())

    def write(self, folder: Path) -> None:
        """`replay.json` and `replay.txt`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "replay.txt").write_text(self.text() + "\n", encoding="utf-8", errors="replace")
        report = {
            "compared": dict(sorted(self.compared.items())),
            "left_out": self.left_out,
            "retries": self.retries,
            "differences": [finding.to_json() for finding in self.findings],
        }
        (folder / "replay.json").write_text(json.dumps(report, indent=1), encoding="utf-8")

    def _lines(self) -> Iterator[str]:
        groups = self.groups
        yield f"{len(self.findings)} differences in {len(groups)} groups" if groups else "no difference"
        for (api, path, _, _), findings in groups.items():
            first = findings[0]
            versions = ", ".join(map(str, sorted({finding.version for finding in findings})))
            yield ""
            yield f"{api} (version {versions}): {path}, {len(findings)} times"
            yield f"  at {first.difference.place} in {first.recording}, exchange {first.exchange}"
            yield f"  A: {short(first.difference.a)}"
            yield f"  B: {short(first.difference.b)}"
            yield f"  asked: {short(first.request)}"
        yield ""
        yield (
            f"{sum(self.compared.values())} answers of {len(self.compared)} APIs and versions compared; "
            f"{self.left_out} requests that the recorded endpoint was not ready for were left out; asked again: "
            + ", ".join(f"{name} {count}" for name, count in self.retries.items())
        )


def _of_exchange(exchange: Exchange, a: Side, b: Side, rules: Sequence[Rule]) -> Iterator[Difference]:
    left, right = a.outcomes.get(exchange.number), b.outcomes.get(exchange.number)
    told_a, told_b = a.told(exchange), b.told(exchange)
    spec = a.specs.find(exchange.request.key, exchange.request.version, is_request=False)
    if told_a is not None and told_b is not None and spec is not None:
        yield from Comparison(exchange.request.api, rules).differences(spec.fields, told_a, told_b)
    elif _bare(left) != _bare(right):
        yield Difference(WHOLE, WHOLE, told_a or _bare(left), told_b or _bare(right))


def _bare(outcome: Outcome | None) -> object:
    """The values to compare if no specification describes the fields."""
    if isinstance(outcome, Refusal):
        return outcome.words.partition(":")[0]
    return outcome.body if isinstance(outcome, Answer) else "not asked"


def plain(value: Any) -> Any:
    """As JSON can say it."""
    if isinstance(value, Stored):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value[:SHOWN]).decode() + ("..." if len(value) > SHOWN else "")
    if isinstance(value, (Missing, Refusal)):
        return str(value)
    return value


def short(value: Any) -> str:
    text = str(value) if isinstance(value, Missing) else json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _kind(value: Any) -> str:
    return "" if value in (None, -1) else type(value).__name__
