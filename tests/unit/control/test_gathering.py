"""Events that come one by one reach Kafka many at a time: each batch costs statements and a turn of a thread."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mesh.rpc import admin
from services.control.store import audit_outbox
from services.control.store.audit_outbox import AuditPublisher
from services.control.store.home_topic import Home
from services.control.store.outbox import pause_behind


class Trail:
    """Has one more audit event each time that it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.stored = asyncio.Condition()

    async def after(self, sequence: int) -> list[admin.AuditEvent]:
        self.asked += 1
        return [admin.AuditEvent(sequence=sequence + 1)]


class Store:
    """Takes every statement."""

    async def carry_out(self, _statements: Any) -> list[Any]:
        return [[]]


async def test_audit_events_that_come_all_the_time_share_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    written = asyncio.Event()
    topic, producer = SimpleNamespace(end=0), SimpleNamespace(purge=lambda: None)
    monkeypatch.setattr(audit_outbox, "prepare_topic", lambda *_: topic)
    monkeypatch.setattr(audit_outbox, "ordered_producer", lambda _: producer)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(audit_outbox, "publish", lambda *_: loop.call_soon_threadsafe(written.set))
    monkeypatch.setattr(audit_outbox, "LINGER_S", 3600.0)
    trail = Trail()
    publisher = AuditPublisher(Store(), trail, Home(("kafka:9092",)), 7)  # type: ignore[arg-type]
    running = asyncio.create_task(publisher.run())
    await written.wait()
    for _ in range(5):  # another batch would go through the thread of the publisher meanwhile
        await publisher._thread.run(lambda: None)
    assert trail.asked == 1
    running.cancel()
    publisher.close()


def test_the_more_events_a_batch_has_the_longer_the_next_one_gathers() -> None:
    assert [pause_behind(number) for number in (1, 4, 10, 500)] == [0.01, 0.04, 0.1, 0.1]
