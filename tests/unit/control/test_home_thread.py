"""The thread of a publisher: a call that never ends holds up no later call."""

from __future__ import annotations

import threading

import pytest

from services.control.store import home_topic
from services.control.store.home_topic import HomeThread, stuck_calls
from tests.fixtures.waiting import until

MOST_STUCK = 2
PATIENT_S = 60.0


async def test_a_call_that_does_not_end_costs_the_publisher_its_thread_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judge found a publisher that waited for a day: its call began while the wall clock was a day ahead."""
    monkeypatch.setattr(home_topic, "KAFKA_TIMEOUT", 0.05)
    ends = threading.Event()
    thread = HomeThread("test")
    try:
        with pytest.raises(TimeoutError):
            await thread.run(ends.wait)
        monkeypatch.setattr(home_topic, "KAFKA_TIMEOUT", PATIENT_S)
        assert await thread.run(lambda: "the next call") == "the next call"
    finally:
        ends.set()
        thread.close()


async def test_calls_that_do_not_end_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_topic, "KAFKA_TIMEOUT", 0.05)
    monkeypatch.setattr(home_topic, "MOST_STUCK", MOST_STUCK)
    ends, thread, began = threading.Event(), HomeThread("test"), list[int]()

    def stuck() -> None:
        began.append(1)
        ends.wait()

    try:
        for calls in range(1, MOST_STUCK + 1):
            with pytest.raises(TimeoutError):
                await thread.run(stuck)
            await until(lambda calls=calls: len(began) == calls, "the call has begun")  # type: ignore[misc]
        with pytest.raises(TimeoutError, match="have not returned"):
            await thread.run(stuck)
        assert len(began) == MOST_STUCK
        ends.set()
        await until(lambda: stuck_calls._value.get() == 0)
        monkeypatch.setattr(home_topic, "KAFKA_TIMEOUT", PATIENT_S)
        assert await thread.run(lambda: "the next call") == "the next call"
    finally:
        ends.set()
        thread.close()
