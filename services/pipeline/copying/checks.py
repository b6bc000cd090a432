"""Checks by its settings whether a target topic will keep the copies. No I/O.

The source cluster finds the offsets of old records by time: `Ages` holds the first offset that is not older than each
limit. So the check of thousands of partitions takes one or two requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mesh.rpc import replays
from services.pipeline.copying.errors import RefusedError
from services.pipeline.copying.offsets import NOWHERE, Stretch
from services.pipeline.copying.routes import Route
from services.pipeline.kafka.positions import Place

UNLIMITED = 2**63 - 1
SOON_MS = 3_600_000
"""A record counts as deleted if retention would take it within this time, or within a tenth of its retention."""
SMALLEST_BATCH, LARGEST_BATCH = 16_384, 1_000_000
"""Bytes that a producer packs into one batch, before compression."""
BATCH_HEAD = 1_024
"""The part of a batch's bytes that may not be records."""


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic that receives copies."""

    partitions: int
    settings: Mapping[str, str]
    topic_id: str = ""

    def number(self, name: str, otherwise: int) -> int:
        return int(self.settings.get(name) or otherwise)

    @property
    def policies(self) -> set[str]:
        return set(self.settings.get("cleanup.policy", "delete").replace(" ", "").split(","))

    @property
    def retention_ms(self) -> int:
        """Milliseconds; negative: for ever."""
        return self.number("retention.ms", -1) if "delete" in self.policies else -1

    @property
    def retention_bytes(self) -> int:
        """Bytes of each partition; negative: no limit."""
        return self.number("retention.bytes", -1) if "delete" in self.policies else -1

    @property
    def batch_bytes(self) -> int:
        """The most bytes of one batch of the producer. A larger record goes alone, and the broker refuses it."""
        return max(SMALLEST_BATCH, min(LARGEST_BATCH, self.number("max.message.bytes", LARGEST_BATCH) - BATCH_HEAD))


@dataclass(frozen=True, slots=True)
class Limits:
    """Times, in milliseconds since 1970, that decide whether a target takes and keeps a record."""

    kept_from: int | None
    """The target deletes older records soon, or at once."""
    taken_from: int | None
    """The broker refuses older records."""
    taken_until: int | None
    """The broker refuses later records."""

    @classmethod
    def of(cls, target: TargetTopic, now_ms: int) -> Limits:
        before = target.number("message.timestamp.before.max.ms", UNLIMITED)
        after = target.number("message.timestamp.after.max.ms", UNLIMITED)
        retention = target.retention_ms
        return cls(
            kept_from=now_ms - retention + min(SOON_MS, retention // 10) if retention >= 0 else None,
            taken_from=now_ms - before if before < now_ms else None,
            taken_until=now_ms + after if after < UNLIMITED - now_ms else None,
        )


@dataclass(frozen=True, slots=True)
class Ages:
    """Offset of the first record not older than each of the limits; NOWHERE if there is none."""

    kept_from: Mapping[Place, int] = field(default_factory=dict)
    taken_from: Mapping[Place, int] = field(default_factory=dict)
    taken_until: Mapping[Place, int] = field(default_factory=dict)


def check_partitions(route: Route, target: TargetTopic, copy: replays.ReplayToTopic, partitions: int) -> None:
    """RefusedError if the target lacks a partition of the same number; `partitions`: the highest source number + 1."""
    if copy.partitioning == replays.REPLAY_PARTITIONING_BY_KEY or partitions <= target.partitions:
        return
    raise RefusedError(
        f"{route}: partition {partitions - 1} is copied, the target has {target.partitions} partitions; add partitions "
        "to it, or let keys choose them (BY_KEY)"
    )


def check_times_kept(route: Route, target: TargetTopic) -> None:
    """RefusedError if the broker replaces the copies' times by its own."""
    if target.settings.get("message.timestamp.type", "CreateTime") != "CreateTime":
        raise RefusedError(
            f"{route}: the target has message.timestamp.type=LogAppendTime, so the copies' times would be lost; set it "
            "to CreateTime, or have them re-timed (timestamps NOW), with the original in a header"
        )


def check_ages(route: Route, stretches: Mapping[Place, Stretch], ages: Ages, target: TargetTopic, force: bool) -> None:
    """RefusedError for records that the target would refuse or soon delete."""
    for place, offset, count in _before(stretches, ages.taken_from):
        raise RefusedError(
            f"{route}: {_those(place, offset, count)} are older than the target takes "
            f"(message.timestamp.before.max.ms={target.settings.get('message.timestamp.before.max.ms')}); raise it, or "
            "have copies re-timed (timestamps NOW)"
        )
    for place, each in stretches.items():
        first = ages.taken_until.get(place, NOWHERE)
        if first != NOWHERE and first < each.end:
            raise RefusedError(
                f"{route}: {place[0]}/{place[1]} has a record at or behind offset {max(first, each.start)} that is "
                "of a later time than the target takes (message.timestamp.after.max.ms="
                f"{target.settings.get('message.timestamp.after.max.ms')}); raise it, or have copies re-timed "
                "(timestamps NOW)"
            )
    if force:
        return
    for place, offset, count in _before(stretches, ages.kept_from):
        raise RefusedError(
            f"{route}: {_those(place, offset, count)} are older than the target keeps (retention.ms="
            f"{target.retention_ms}) and would be deleted soon, or at once; raise its retention.ms, have copies "
            "re-timed (timestamps NOW), or copy them nevertheless (force)"
        )


def _before(stretches: Mapping[Place, Stretch], firsts: Mapping[Place, int]) -> Iterator[tuple[Place, int, int]]:
    """Partitions with older records: the partition, the offset of the first of them, the number of offsets."""
    for place, each in stretches.items():
        if place not in firsts or each.start >= each.end:
            continue
        until = each.end if firsts[place] == NOWHERE else min(firsts[place], each.end)
        if until > each.start:
            yield place, each.start, until - each.start


def _those(place: Place, offset: int, count: int) -> str:
    return f"{count} offsets of {place[0]}/{place[1]} from {offset} on"


def check_sizes(route: Route, stretches: Mapping[Place, Stretch], target: TargetTopic, mean_bytes: float) -> None:
    """RefusedError if a partition would exceed the target's retention.bytes; `mean_bytes`: of a sampled record."""
    limit = target.retention_bytes
    for place, each in stretches.items():
        expected = (each.end - each.start) * mean_bytes
        if limit >= 0 and expected > limit:
            raise RefusedError(
                f"{route}: {each.end - each.start} offsets of {place[0]}/{place[1]} are about {expected:.0f} bytes, "
                f"the target keeps {limit} of a partition (retention.bytes); raise it, or copy them nevertheless "
                "(force)"
            )


def check_compaction(route: Route, target: TargetTopic, source: Mapping[str, str]) -> None:
    """RefusedError if the target keeps only the last record of each key, and the source keeps all."""
    if "compact" in target.policies and "compact" not in source.get("cleanup.policy", "delete"):
        raise RefusedError(
            f"{route}: the target keeps only the last record of each key (cleanup.policy=compact), the source all; "
            "take another target, or copy them nevertheless (force): records without a key are refused by the broker"
        )
