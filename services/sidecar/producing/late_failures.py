"""Failures of records whose request was answered before: they are counted and logged, as no answer can have them."""

import asyncio
from functools import partial

import structlog

from services.sidecar.records import Failed, WriteOutcome
from services.sidecar.telemetry import metrics

MAX_LINES = 100
"""Log lines for one request, at most; further failures are only counted."""

log = structlog.get_logger(__name__)


def tell_failures(topic: str, acknowledged: "asyncio.Future[list[WriteOutcome]]") -> None:
    """Reports the failures once all outcomes are known. The audit trail, not the log, names the records."""
    acknowledged.add_done_callback(partial(_settled, topic))


def _settled(topic: str, done: "asyncio.Future[list[WriteOutcome]]") -> None:
    failures = [one for one in done.result() if isinstance(one, Failed)]
    if not failures:
        return
    metrics.async_failures.inc(len(failures))
    for failure in failures[:MAX_LINES]:
        log.warning("record not written", topic=topic, error=failure.error.value, why=failure.text)
    if len(failures) > MAX_LINES:
        log.warning("more records not written", topic=topic, records=len(failures) - MAX_LINES)
