"""The measured rate and the pauses, beside a plain reading of Kafka's SampledStat, Rate and QuotaUtils."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from mesh.quotas.rate import SAMPLES, Rate


@dataclass
class KafkasRate:
    """Sums of samples of 1 s; the time is in milliseconds, as in Kafka."""

    quota: float
    samples: list[tuple[int, float]] = field(default_factory=list)

    def _purge(self, now: int) -> None:
        self.samples = [(start, value) for start, value in self.samples if now - start < SAMPLES * 1000]

    def record(self, value: float, now: int) -> float:
        self._purge(now)
        if not self.samples or now - self.samples[-1][0] >= 1000:
            self.samples.append((now, 0.0))
        start, before = self.samples[-1]
        self.samples[-1] = (start, before + value)
        window = self.window(now)
        rate = sum(amount for _, amount in self.samples) / (window / 1000)
        return (rate - self.quota) / self.quota * window if rate > self.quota else 0.0

    def window(self, now: int) -> int:
        elapsed = now - min(start for start, _ in self.samples)
        full_windows = elapsed // 1000
        return elapsed + max(0, SAMPLES - 1 - full_windows) * 1000


@pytest.mark.parametrize("seed", range(20))
def test_pauses_are_those_of_kafka(seed: int) -> None:
    chance = random.Random(seed)  # a seed, so that a failure can be repeated
    quota = chance.choice((1.0, 1000.0, 12_345.6))
    ours, kafkas = Rate(quota), KafkasRate(quota)
    now, paused = 1_000_000, 0
    for _ in range(500):
        now += chance.choice((0, 1, 7, 250, 999, 1000, 1001, 15_000))
        amount = quota * chance.choice((0.0, 0.1, 1.0, 15.0))
        pause = ours.used(amount, now / 1000)
        assert pause * 1000 == pytest.approx(kafkas.record(amount, now), abs=0.01)
        paused += pause > 0
    assert paused > 10


def test_a_client_that_heeds_its_pauses_keeps_to_its_quota() -> None:
    rate, now, sent = Rate(1000.0), 0.0, 0
    while now < 120.0:
        sent += 500
        now += 0.01 + rate.used(500, now)
    assert 1000 * 120 * 0.99 < sent < 1000 * 132, "the first ten seconds' worth may come at once"


def test_a_quiet_client_may_use_ten_seconds_worth_at_once_and_no_more() -> None:
    rate = Rate(100.0)
    assert rate.used(1000.0, 5.0) == 0.0
    assert rate.used(50.0, 5.0) == pytest.approx(0.5)


def test_nobody_exceeds_the_quota_within_the_room() -> None:
    chance = random.Random(7)
    rate, now, unmeasured, spared = Rate(100.0), 0.0, 0.0, 0
    for _ in range(5000):
        now += chance.random() / 5
        amount = chance.random() * 30
        unmeasured += amount
        rate.room -= amount
        if rate.room < 0 or now >= rate.until:
            pause = rate.used(unmeasured, now)
            unmeasured = 0.0
            now += pause
        else:
            spared += 1
            assert (rate.measured(now) * 10 + unmeasured) / 10 <= 100.0 * 1.2
    assert spared > 1000


def test_a_use_that_did_not_come_about_is_taken_back() -> None:
    rate = Rate(1.0)
    assert rate.used(20.0, 0.0) == pytest.approx(10.0)
    rate.unused(20.0, 0.1)
    assert rate.used(9.0, 0.2) == 0.0


@pytest.mark.parametrize("batch", [50_000, 100_000, 400_000])
def test_an_eager_client_gets_its_quota_over_minutes_although_bursts_come_back(batch: int) -> None:
    """In a span of 22 s it may be two thirds of the quota or a third more: a measurement has to be longer than that."""
    quota, seconds, latency = 200_000.0, 1_000.0, 0.01
    rate, now, used = Rate(quota), 0.0, 0.0
    while now < seconds:
        now += latency + rate.used(batch, now)
        used += batch
    assert used / quota / seconds == pytest.approx(1.0, abs=0.05)
