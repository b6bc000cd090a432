"""The thread of a publisher: a call that never ends holds up no later call."""

from __future__ import annotations

import threading

import pytest

from services.control.store import home_topic
from services.control.store.home_topic import HomeThread


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
        assert await thread.run(lambda: "the next call") == "the next call"
    finally:
        ends.set()
        thread.close()
