"""Findings that compare a topic's last profile with the place to which its records are to go.

A profile may be old, so each finding says when the profile was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mesh.routing import Place
from mesh.rpc import profiles as profiles_pb
from services.control.domain.dry_runs.findings import COMPACTION, Finding, FindingKind, Settings, Severity
from services.control.domain.rules.moves import Move, located

LARGEST_MESSAGE = "max.message.bytes"
LOOKED_AT = frozenset({LARGEST_MESSAGE, COMPACTION})
"""Settings of target topics that these findings use."""
SKEWED = 0.2
"""The share of the records from which a dry run reports one key: its partition has them all, wherever the topic is."""
OLD = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Records of a topic that are to go to a place."""

    topic: str
    """The topic's name for clients."""
    place: Place


def arrivals_of_moves(moves: Iterable[Move]) -> list[Arrival]:
    return list(dict.fromkeys(Arrival(move.topic, move.target) for move in moves if move.target is not None))


def of_profiles(
    arrivals: Iterable[Arrival], profiles: Mapping[str, profiles_pb.TopicProfile], settings: Settings, now: datetime
) -> list[Finding]:
    """The findings of all arrivals. Topics without a profile and unknown settings give no finding."""
    return [
        finding
        for each in arrivals
        if each.topic in profiles
        for finding in _of_profile(each, profiles[each.topic], settings.get(each.place, {}), now)
    ]


def _of_profile(
    arrival: Arrival, profile: profiles_pb.TopicProfile, settings: Mapping[str, str], now: datetime
) -> Iterator[Finding]:
    topic, there = arrival.topic, located(arrival.topic, arrival.place)
    since = _since(profile, now)

    def finding(kind: FindingKind, severity: Severity, text: str) -> Finding:
        return Finding(kind, severity, topic, f"topic {topic!r} {text} ({since})")

    limit = settings.get(LARGEST_MESSAGE)
    if limit is not None and profile.values.largest > int(limit):
        text = f"has values of up to {profile.values.largest} bytes, and {LARGEST_MESSAGE}={limit} {there}"
        yield finding(FindingKind.RECORDS_TOO_LARGE, Severity.WARNING, f"{text}: what is not compressed is refused")
    if profile.null_keys and "compact" in settings.get(COMPACTION, ""):
        text = f"has records without a key ({profile.null_keys} of {profile.records}), and is compacted {there}"
        yield finding(FindingKind.KEYS_MISSING, Severity.BREAKS, f"{text}: these are refused")
    if profile.top_key_share >= SKEWED:
        text = f"has one key in {profile.top_key_share:.0%} of its records: one partition gets them {there}, too"
        yield finding(FindingKind.KEYS_SKEWED, Severity.WARNING, text)
    yield finding(FindingKind.PROFILE, Severity.NOTE, _spread(profile))


def _spread(profile: profiles_pb.TopicProfile) -> str:
    partitions = profile.partition_records
    sample = " of a sample" if profile.is_sample else ""
    said = f"has {profile.records} records{sample}, {profile.values.median} bytes in the middle"
    if len(partitions) < 2 or not profile.records:  # a single partition has nothing to compare
        return said
    fullest = max(partitions, key=lambda each: (partitions[each], -each))
    share = partitions[fullest] / profile.records
    return f"{said}, in {len(partitions)} partitions, {share:.0%} of them in partition {fullest}"


def _since(profile: profiles_pb.TopicProfile, now: datetime) -> str:
    made = profile.time.ToDatetime(UTC)
    age = now - made
    text = f"as of {made:%Y-%m-%d %H:%M} UTC"
    if age < OLD:
        return text
    return f"{text}, {age.days} days ago: `meshctl topic profile {profile.topic}` looks again"
