"""The bound for reads of a fork's past: who is above it waits, others go on, and forks that are gone are forgotten."""

from __future__ import annotations

import pytest

from mesh.quotas.rate import SAMPLES
from services.gateway.requests.records.past_reads import PastReads

BOUND = 1000


def test_a_past_waits_for_the_excess_and_other_pasts_do_not() -> None:
    reads = PastReads()
    reads.count("staging", SAMPLES * BOUND, BOUND, 0.0)
    wait_s = reads.wait_s("staging", 0.0)
    assert wait_s == pytest.approx(1.0)
    assert reads.wait_s("staging", wait_s) == 0.0
    assert reads.wait_s("other", 0.0) == 0.0


def test_a_past_within_its_bound_does_not_wait() -> None:
    reads = PastReads()
    reads.count("staging", BOUND, BOUND, 0.0)
    assert reads.wait_s("staging", 0.0) == 0.0


def test_another_bound_counts_from_anew() -> None:
    reads = PastReads()
    reads.count("staging", 100 * BOUND, BOUND, 0.0)
    reads.count("staging", 1, 1000 * BOUND, 0.0)
    assert reads.wait_s("staging", 0.0) == 0.0


def test_a_fork_that_is_gone_is_forgotten() -> None:
    reads = PastReads()
    for topic in ("staging", "repair"):
        reads.count(topic, 100 * BOUND, BOUND, 0.0)
    reads.keep({"repair"})
    assert reads.wait_s("staging", 0.0) == 0.0
    assert reads.wait_s("repair", 0.0) > 0
