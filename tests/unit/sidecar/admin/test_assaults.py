"""Faults on purpose: how they are set, and when they strike."""

import asyncio
import random
from typing import Any

import pytest

from services.sidecar.admin import held_memory
from services.sidecar.admin.assaults import DEFAULTS, Assaults, LatencyAssault, MemoryAssault

LATENCY = "com.networknt.chaos.LatencyAssaultHandler"
MEMORY = "com.networknt.chaos.MemoryAssaultHandler"


def test_nothing_is_armed_at_first() -> None:
    assaults = Assaults(enabled=True)
    assert not assaults.any_armed
    assert assaults.striking(random.Random(1)) == []
    assert assaults.shown()[LATENCY] == {
        "enabled": False,
        "bypass": True,
        "level": 10,
        "latencyRangeStart": 1000,
        "latencyRangeEnd": 3000,
    }


def test_what_is_not_given_has_its_default() -> None:
    assaults = Assaults(enabled=True)
    assaults.set(LATENCY, {"enabled": True, "bypass": False, "level": 1, "latencyRangeEnd": 5000})
    changed = assaults.set(LATENCY, {"enabled": True})
    assert changed == LatencyAssault(enabled=True)


def test_level_one_strikes_every_request_and_level_n_about_every_nth() -> None:
    chance = random.Random(7)
    always = LatencyAssault(enabled=True, bypass=False, level=1)
    assert all(always.strikes(chance) for _ in range(100))
    seldom = LatencyAssault(enabled=True, bypass=False, level=10)
    assert 50 < sum(seldom.strikes(chance) for _ in range(1000)) < 200


@pytest.mark.parametrize("members", [{"enabled": False, "bypass": False}, {"enabled": True, "bypass": True}])
def test_a_bypassed_or_disabled_assault_never_strikes(members: dict[str, Any]) -> None:
    assaults = Assaults(enabled=True)
    assaults.set(LATENCY, {**members, "level": 1})
    assert not assaults.any_armed
    assert assaults.striking(random.Random(1)) == []


def test_the_delay_is_within_its_range() -> None:
    assault = LatencyAssault(latency_range_start=10, latency_range_end=20)
    delays = [assault.delay_seconds(random.Random(seed)) for seed in range(100)]
    assert min(delays) >= 0.010
    assert max(delays) <= 0.020


def test_memory_is_taken_in_steps_and_never_above_the_ceiling() -> None:
    assault = MemoryAssault(memory_fill_increment_fraction=0.1, memory_fill_target_fraction=0.25)
    assert assault.steps(available=1000, ceiling=10_000) == [100, 100, 50]
    assert sum(assault.steps(available=1000, ceiling=120)) == 120


@pytest.mark.parametrize(
    ("name", "members", "wrong"),
    [
        (LATENCY, {"level": 0}, "level: 0 found"),
        (LATENCY, {"latencyRangeStart": 9, "latencyRangeEnd": 3}, "expected 0 <= start <= end"),
        (MEMORY, {"memoryFillTargetFraction": 1.5}, "memoryFillTargetFraction: 1.5 found"),
        (MEMORY, {"memoryMillisecondsHoldFilledMemory": -1}, "memoryMillisecondsHoldFilledMemory: -1 found"),
    ],
)
def test_what_makes_no_sense_is_named_and_changes_nothing(name: str, members: dict[str, Any], wrong: str) -> None:
    assaults = Assaults(enabled=True)
    with pytest.raises(ValueError, match=wrong):
        assaults.set(name, members)
    assert assaults[name] == DEFAULTS[name]


def test_members_of_other_assaults_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="memoryFillTargetFraction: no member of this assault"):
        Assaults(enabled=True).set(LATENCY, {"memoryFillTargetFraction": 0.5})


async def test_memory_is_given_back_when_its_assault_is_put_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_memory, "available_bytes", lambda: 1_000_000)
    assaults, held = Assaults(enabled=True), held_memory.HeldMemory()
    assaults.on_change = held.changed
    armed = assaults.set(MEMORY, {"enabled": True, "bypass": False, "memoryMillisecondsWaitNextIncrease": 0})
    assert isinstance(armed, MemoryAssault)
    held.begin(armed)
    async with asyncio.timeout(30):
        while held.bytes < 250_000:
            await asyncio.sleep(0)
        assaults.set(LATENCY, {"enabled": True})
        assert held.bytes == 250_000
        assaults.set(MEMORY, {})
        while held.bytes:
            await asyncio.sleep(0)
    await held.end()
