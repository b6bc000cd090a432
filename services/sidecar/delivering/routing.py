"""Rules in CEL about the content of records: they select the backend's records and the path of each.

The filter is evaluated first, then the routes in their order; the first true route decides. If a rule cannot be
evaluated for a record, the record is delivered as if that rule did not exist. A metric counts such records, and the log
names the first record of each rule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson
import structlog

from mesh.record_expressions import Expression, Facts, InvalidExpressionError, UndecidedError
from services.sidecar.delivering.batch import Deliverable
from services.sidecar.formats import json_text
from services.sidecar.telemetry import metrics

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_MS = (datetime(1, 1, 2, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
_LATEST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
"""The latest timestamp of CEL; Kafka takes any 64 bits."""
USUAL_PATH = ""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """Records for which it is true go there."""

    when: str
    path: str


class ContentRouting:
    """Called with a record: its path, empty for the usual one; None where the record does not concern the backend."""

    def __init__(self, only: str = "", routes: Sequence[Route] = ()) -> None:
        """`only`: the filter, empty for all.

        InvalidExpressionError, with the name of the rule, for an invalid expression.
        """
        self._filter = _expression("filter", only) if only else None
        self._routes = [
            (_expression(f"route {number}", route.when), route.path) for number, route in enumerate(routes, start=1)
        ]
        asked = [*([self._filter] if self._filter else []), *(expression for expression, _ in self._routes)]
        names = frozenset(name for expression in asked for name in expression.names)
        self._parts = [(name, part) for name, part in _PARTS.items() if name in names]
        self._is_asked_often = len(asked) > 1
        self._named: set[str] = set()

    def __call__(self, record: Deliverable) -> str | None:
        if not self._routes and self._filter is None:
            return USUAL_PATH
        known: Mapping[str, object] | Facts = {name: part(record) for name, part in self._parts}
        if self._is_asked_often and isinstance(known, Mapping):
            known = Facts(known)
        if self._filter is not None and not self._holds(self._filter, known, record, otherwise=True):
            return None
        for expression, path in self._routes:
            if self._holds(expression, known, record, otherwise=False):
                return path
        return USUAL_PATH

    def _holds(
        self, expression: Expression, known: Mapping[str, object] | Facts, record: Deliverable, *, otherwise: bool
    ) -> bool:
        try:
            return expression(known)
        except UndecidedError as error:
            metrics.undecided_records.inc()
            if expression.text not in self._named:
                self._named.add(expression.text)
                raw = record.raw
                log.warning(
                    "a rule of content cannot be decided; the record goes the usual way", rule=expression.text,
                    topic=raw.topic, partition=raw.partition, offset=raw.offset, reason=str(error),
                )  # fmt: skip
            return otherwise


def _expression(what: str, text: str) -> Expression:
    try:
        return Expression(text)
    except InvalidExpressionError as error:
        raise InvalidExpressionError(f"{what}: {error}") from None


def _headers(record: Deliverable) -> dict[str, str]:
    """Name and text; the last one of a name counts. Null is an empty text."""
    return {name: value.decode(errors="replace") if value else "" for name, value in record.raw.headers}


def _timestamp(record: Deliverable) -> datetime:
    return EPOCH + timedelta(milliseconds=max(_EARLIEST_MS, min(record.raw.timestamp, _LATEST_MS)))


def _tree(shown: object) -> object:
    """Parses JSON that is otherwise passed on unchanged, for a rule that uses it."""
    return json_text.loads(orjson.dumps(shown)) if isinstance(shown, orjson.Fragment) else shown


_PARTS: dict[str, Callable[[Deliverable], object]] = {
    "key": lambda record: _tree(record.shown.key),
    "headers": _headers,
    "value": lambda record: _tree(record.shown.value),
    "topic": lambda record: record.raw.topic,
    "partition": lambda record: record.raw.partition,
    "offset": lambda record: record.raw.offset,
    "timestamp": _timestamp,
}
