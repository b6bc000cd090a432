"""Failures after the answer: counted and logged."""

import asyncio
from typing import Any

import structlog
from structlog.testing import capture_logs

from services.sidecar.producing.late_failures import MAX_LINES, tell_failures
from services.sidecar.records import Delivered, DeliveryError, Failed, WriteOutcome
from services.sidecar.telemetry import metrics

LOST = Failed(DeliveryError.RETRIABLE, "Local: Message timed out")


async def logged(outcomes: list[WriteOutcome]) -> list[Any]:
    """The log lines of a request with these outcomes."""
    done: asyncio.Future[list[WriteOutcome]] = asyncio.get_running_loop().create_future()
    tell_failures("apples", done)
    with capture_logs(processors=[structlog.stdlib.add_log_level]) as lines:
        done.set_result(outcomes)
        await asyncio.sleep(0)
    return list(lines)


async def test_a_failure_that_no_answer_tells_is_counted_and_logged() -> None:
    before = metrics.async_failures._value.get()
    (line,) = await logged([Delivered(0, 1), LOST])
    assert (line["topic"], line["error"], line["why"]) == ("apples", 50003, "Local: Message timed out")
    assert metrics.async_failures._value.get() - before == 1


async def test_what_arrived_is_not_worth_a_word() -> None:
    assert await logged([Delivered(0, 1)]) == []


async def test_a_request_that_failed_as_a_whole_does_not_flood_the_log() -> None:
    lines = await logged([LOST] * 1000)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1]["records"] == 900
