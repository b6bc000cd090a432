"""Batches of a topic are given to Kafka's client in waves: what comes meanwhile goes together, in order, and soon."""

from __future__ import annotations

import asyncio

import pytest

from services.sidecar.producing.delivery import Batch
from services.sidecar.producing.waves import SENT_AT_ONCE, SLICE_RECORDS, WAVE_RECORDS, Given, Waves
from services.sidecar.records import Delivered, Outgoing

WITHIN_SECONDS = 60
RECORD = Outgoing(key=None, value=b"v", partition=None, timestamp=0, headers=[])


class Client:
    """Remembers what it was handed, by topic and number of records, and acknowledges when it is told to."""

    def __init__(self, linger_seconds: float = 0) -> None:
        self.handed: list[tuple[str, int]] = []
        self.waves = Waves(self._hand_over, linger_seconds)

    def give(self, topic: str, records: int) -> Given:
        given = Given(topic, [RECORD] * records, Batch(records))
        self.waves.add(given)
        return given

    async def until_handed(self, *expected: tuple[str, int]) -> None:
        async with asyncio.timeout(WITHIN_SECONDS):
            while self.handed != list(expected):
                await asyncio.sleep(0.001)

    def _hand_over(self, given: Given, start: int, stop: int) -> None:
        self.handed.append((given.topic, stop - start))


async def acknowledge(*all_given: Given) -> None:
    for given in all_given:
        for index in range(len(given.records)):
            given.batch.settle(index, Delivered(0, index))
        await given.batch.done
    await asyncio.sleep(0)


async def test_hardly_anything_on_the_way_keeps_nobody_waiting() -> None:
    client = Client()
    for _ in range(SENT_AT_ONCE + 1):
        client.give("apples", 1)
    assert client.handed == [("apples", 1)] * (SENT_AT_ONCE + 1)


async def test_what_comes_meanwhile_goes_together_and_in_order_when_the_wave_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.sidecar.producing.waves.WAVE_SECONDS", 3600)
    client = Client()
    first = client.give("apples", 100)
    client.give("apples", 7)
    client.give("apples", 8)
    assert client.handed == [("apples", 100)]
    await acknowledge(first)
    assert client.handed == [("apples", 100), ("apples", 7), ("apples", 8)]


async def test_what_comes_before_the_client_has_sent_the_wave_goes_with_it() -> None:
    client = Client(linger_seconds=3600)
    client.give("apples", 100)
    client.give("apples", 7)
    assert client.handed == [("apples", 100), ("apples", 7)]


async def test_a_topic_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.sidecar.producing.waves.WAVE_SECONDS", 3600)
    client = Client()
    client.give("apples", 100)
    client.give("pears", 100)
    assert client.handed == [("apples", 100), ("pears", 100)]


async def test_a_wave_that_never_arrives_holds_up_the_next_for_a_moment_only() -> None:
    client = Client()
    late = client.give("apples", 100)
    second = client.give("apples", 7)
    await client.until_handed(("apples", 100), ("apples", 7))
    client.give("apples", 8)
    await acknowledge(late)  # of a wave that nobody waits for any more
    assert client.handed[2:] == []
    await acknowledge(second)
    assert client.handed[2:] == [("apples", 8)]


async def test_a_wave_has_a_bound_and_a_larger_batch_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.sidecar.producing.waves.WAVE_SECONDS", 3600)
    client = Client()
    first = client.give("apples", 6)
    large = client.give("apples", WAVE_RECORDS + 1)
    client.give("apples", 1)
    await acknowledge(first)
    slices = [("apples", SLICE_RECORDS)] * (WAVE_RECORDS // SLICE_RECORDS)
    await client.until_handed(("apples", 6), *slices, ("apples", 1))
    handed = len(client.handed)
    await acknowledge(large)
    assert client.handed[handed:] == [("apples", 1)]


async def test_other_topics_have_their_turn_between_two_slices() -> None:
    client = Client()
    client.give("apples", 2 * SLICE_RECORDS)
    client.give("pears", 1)
    await client.until_handed(("apples", SLICE_RECORDS), ("pears", 1), ("apples", SLICE_RECORDS))


async def test_at_the_end_all_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.sidecar.producing.waves.WAVE_SECONDS", 3600)
    client = Client()
    client.give("apples", SLICE_RECORDS + 1)
    client.give("apples", 7)
    client.waves.end()
    assert sum(records for _, records in client.handed) == SLICE_RECORDS + 1 + 7
