"""Whether a target keeps what is copied to it."""

from __future__ import annotations

import pytest

from mesh.rpc import replays
from services.pipeline.copying import checks
from services.pipeline.copying.checks import Ages, Limits, TargetTopic
from services.pipeline.copying.errors import RefusedError
from services.pipeline.copying.offsets import NOWHERE, Stretch
from services.pipeline.copying.routes import Route

NOW = 1_800_000_000_000
HOUR = 3_600_000
ROUTE = Route("apples", "c1", "apples", "c2", "pears", "g")
PLACE = ("apples", 0)
STRETCHES = {PLACE: Stretch(100, 200)}


def target(partitions: int = 3, **settings: str) -> TargetTopic:
    return TargetTopic(partitions, {name.replace("_", "."): value for name, value in settings.items()})


def test_a_target_needs_the_partitions_of_its_source() -> None:
    same = replays.ReplayToTopic()
    checks.check_partitions(ROUTE, target(3), same, 3)
    with pytest.raises(RefusedError, match="c1/apples to c2/pears: partition 3 is copied, the target has 3 partitions"):
        checks.check_partitions(ROUTE, target(3), same, 4)
    by_key = replays.ReplayToTopic(partitioning=replays.REPLAY_PARTITIONING_BY_KEY)
    checks.check_partitions(ROUTE, target(1), by_key, 4)


def test_a_target_that_writes_its_own_times_keeps_none() -> None:
    checks.check_times_kept(ROUTE, target(message_timestamp_type="CreateTime"))
    with pytest.raises(RefusedError, match="LogAppendTime, so the copies' times would be lost"):
        checks.check_times_kept(ROUTE, target(message_timestamp_type="LogAppendTime"))


def test_what_retention_would_take_soon_is_as_good_as_gone() -> None:
    assert Limits.of(target(retention_ms=str(48 * HOUR)), NOW).kept_from == NOW - 47 * HOUR
    assert Limits.of(target(retention_ms=str(HOUR)), NOW).kept_from == NOW - HOUR * 9 // 10
    assert Limits.of(target(retention_ms="-1"), NOW).kept_from is None
    assert Limits.of(target(retention_ms="1000", cleanup_policy="compact"), NOW).kept_from is None
    assert Limits.of(target(retention_ms="1000", cleanup_policy="compact, delete"), NOW).kept_from is not None


def test_brokers_refuse_times_beyond_their_bounds() -> None:
    limits = Limits.of(target(message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="2000"), NOW)
    assert (limits.taken_from, limits.taken_until) == (NOW - 1_000, NOW + 2_000)
    unbounded = str(2**63 - 1)
    usual = target(message_timestamp_before_max_ms=unbounded, message_timestamp_after_max_ms=unbounded)
    assert Limits.of(usual, NOW) == Limits(None, None, None)


@pytest.mark.parametrize(("first", "count"), [(150, 50), (NOWHERE, 100), (500, 100)])
def test_records_that_the_target_would_delete_are_refused_unless_forced(first: int, count: int) -> None:
    ages = Ages(kept_from={PLACE: first})
    with pytest.raises(RefusedError, match=rf"{count} offsets of apples/0 from 100 on are older than the target keeps"):
        checks.check_ages(ROUTE, STRETCHES, ages, target(retention_ms="1000"), force=False)
    checks.check_ages(ROUTE, STRETCHES, ages, target(retention_ms="1000"), force=True)


@pytest.mark.parametrize("first", [0, 100])
def test_records_that_are_young_enough_are_not(first: int) -> None:
    checks.check_ages(ROUTE, STRETCHES, Ages(kept_from={PLACE: first}), target(), force=False)


def test_nothing_is_too_old_where_nothing_is_copied() -> None:
    checks.check_ages(ROUTE, {PLACE: Stretch(100, 100)}, Ages(kept_from={PLACE: NOWHERE}), target(), force=False)


def test_what_a_broker_would_refuse_no_force_helps() -> None:
    with pytest.raises(RefusedError, match="older than the target takes"):
        checks.check_ages(ROUTE, STRETCHES, Ages(taken_from={PLACE: 101}), target(), force=True)
    with pytest.raises(RefusedError, match="at or behind offset 180 that is of a later time than the target takes"):
        checks.check_ages(ROUTE, STRETCHES, Ages(taken_until={PLACE: 180}), target(), force=True)
    checks.check_ages(ROUTE, STRETCHES, Ages(taken_until={PLACE: 200}), target(), force=False)


def test_a_partition_that_would_outgrow_what_is_kept() -> None:
    checks.check_sizes(ROUTE, STRETCHES, target(retention_bytes="10000"), mean_bytes=100.0)
    with pytest.raises(RefusedError, match="100 offsets of apples/0 are about 10100 bytes, the target keeps 10000"):
        checks.check_sizes(ROUTE, STRETCHES, target(retention_bytes="10000"), mean_bytes=101.0)
    checks.check_sizes(ROUTE, STRETCHES, target(retention_bytes="-1"), mean_bytes=1e9)


def test_compaction_would_eat_what_the_source_keeps() -> None:
    compact = target(cleanup_policy="compact")
    with pytest.raises(RefusedError, match="keeps only the last record of each key"):
        checks.check_compaction(ROUTE, compact, {"cleanup.policy": "delete"})
    checks.check_compaction(ROUTE, compact, {"cleanup.policy": "compact"})
    checks.check_compaction(ROUTE, target(), {"cleanup.policy": "delete"})


def test_a_batch_is_never_larger_than_the_target_takes() -> None:
    assert target(max_message_bytes="100000").batch_bytes == 100_000 - checks.BATCH_HEAD
    assert target(max_message_bytes="1").batch_bytes == checks.SMALLEST_BATCH
    assert target(max_message_bytes="104857600").batch_bytes == checks.LARGEST_BATCH
