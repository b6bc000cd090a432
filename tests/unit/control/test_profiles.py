"""Profiles: the last one of each topic is kept, within bounds; and what it says against the place where records go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mesh.routing import Place
from mesh.rpc import events, profiles, record_rules, replays
from services.control.domain.dry_runs.findings import Finding, FindingKind, Severity
from services.control.domain.dry_runs.profiles import arrivals_of_moves, of_profiles
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.records.flows import arrivals_of_rule
from services.control.domain.replays.profiles import (
    KEPT_BYTES,
    LARGEST,
    Profiles,
    check_profiles,
    fitting,
    fold_profiles,
    profile_of,
)
from services.control.domain.rules.moves import Move
from tests.unit.control.worlds import table

MADE = datetime(2026, 11, 1, 12, tzinfo=UTC)
HERE, THERE = Place("c1", "apples"), Place("c2", "apples")
MOVE = Move("apples", HERE, THERE, 3)


def profile(topic: str = "apples", **said: Any) -> profiles.TopicProfile:
    """A thousand records of 100 bytes."""
    values = profiles.ByteSizes(median=100, largest=1_000)
    made = profiles.TopicProfile(topic=topic, **{"records": 1000, "values": values, **said})
    made.time.FromDatetime(MADE)
    return made


def ended(*found: profiles.TopicProfile) -> events.Event:
    return events.Event(replay_ended=events.ReplayEnded(name="replays/1", profiles=found))


def findings(said: profiles.TopicProfile, later: timedelta = timedelta(), **settings: str) -> list[Finding]:
    there = {THERE: {name.replace("_", "."): value for name, value in settings.items()}}
    return of_profiles(arrivals_of_moves([MOVE]), {"apples": said}, there, MADE + later)


def kinds(found: list[Finding]) -> list[tuple[FindingKind, Severity]]:
    return [(each.kind, each.severity) for each in found]


def test_the_last_profile_of_each_topic_counts() -> None:
    known: Profiles = {}
    for said in (profile(records=1), profile("pears"), profile(records=2)):
        known = fold_profiles(known, ended(said))
    assert {topic: each.records for topic, each in known.items()} == {"pears": 1000, "apples": 2}
    assert fold_profiles(known, ended()) is known
    assert profile_of(known, "apples").records == 2
    with pytest.raises(Unknown, match="topic 'plums' has not been looked at; `meshctl topic profile plums` does it"):
        profile_of(known, "plums")


def test_they_are_bounded_and_the_oldest_goes_first() -> None:
    headers = {f"header-{number:0200}": number for number in range(1, 100)}
    known: Profiles = {}
    for number in range(400):
        known = fold_profiles(known, ended(profile(f"t{number}", header_names=headers)))
    assert sum(each.ByteSize() for each in known.values()) <= KEPT_BYTES
    assert "t399" in known
    assert "t0" not in known


def test_one_that_is_too_large_is_kept_without_its_partitions_then_with_fewer_fields() -> None:
    usual = profile(partition_records={0: 1})
    assert fitting(usual) is usual
    wide = profile(partition_records=dict.fromkeys(range(10_000), 1_000_000))
    assert not fitting(wide).partition_records
    path = "p" * 1000
    deep = profile(fields=[profiles.FieldProfile(path=f"{path}{number}") for number in range(200)])
    assert 0 < len(fitting(deep).fields) < 200
    assert fitting(deep).ByteSize() <= LARGEST


def test_a_member_tells_of_topics_that_it_was_to_look_at() -> None:
    spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic="apples")], profile=replays.ReplayToProfile())
    check_profiles([profile()], spec)
    with pytest.raises(InvalidField, match=r"profiles\[1\].topic: 'pears' is no topic of this profile replay"):
        check_profiles([profile(), profile("pears")], spec)
    copy = replays.ReplaySpec(ranges=spec.ranges, topic=replays.ReplayToTopic())
    with pytest.raises(InvalidField, match="is no topic of this profile replay"):
        check_profiles([profile()], copy)


def test_records_that_the_target_does_not_take_are_warned_of() -> None:
    large, note = findings(profile(), max_message_bytes="999")
    assert kinds([large, note]) == [
        (FindingKind.RECORDS_TOO_LARGE, Severity.WARNING),
        (FindingKind.PROFILE, Severity.NOTE),
    ]
    assert large.text == (
        "topic 'apples' has values of up to 1000 bytes, and max.message.bytes=999 on 'c2': what is not compressed is "
        "refused (as of 2026-11-01 12:00 UTC)"
    )
    assert kinds(findings(profile(), max_message_bytes="1000")) == [(FindingKind.PROFILE, Severity.NOTE)]


def test_a_compacted_target_takes_no_record_without_a_key() -> None:
    [missing, _] = findings(profile(null_keys=7), cleanup_policy="compact,delete")
    assert (missing.kind, missing.severity) == (FindingKind.KEYS_MISSING, Severity.BREAKS)
    assert "(7 of 1000), and is compacted on 'c2'" in missing.text
    assert len(findings(profile(null_keys=7), cleanup_policy="delete")) == 1
    assert len(findings(profile(), cleanup_policy="compact")) == 1


def test_one_key_with_much_of_the_records_is_told() -> None:
    [skewed, _] = findings(profile(top_key_share=0.37))
    assert skewed.text.startswith("topic 'apples' has one key in 37% of its records: one partition gets them on 'c2'")
    assert len(findings(profile(top_key_share=0.19))) == 1


def test_how_records_lie_is_noted_and_how_long_ago_that_was() -> None:
    [note] = findings(profile(partition_records={0: 100, 1: 600, 2: 300}, is_sample=True), later=timedelta(days=21))
    assert note.text == (
        "topic 'apples' has 1000 records of a sample, 100 bytes in the middle, in 3 partitions, 60% of them in "
        "partition 1 (as of 2026-11-01 12:00 UTC, 21 days ago: `meshctl topic profile apples` looks again)"
    )


def test_a_topic_without_a_profile_or_a_place_gives_no_finding() -> None:
    assert of_profiles(arrivals_of_moves([MOVE]), {}, {}, MADE) == []
    assert arrivals_of_moves([Move("apples", HERE, None, 3)]) == []


def test_a_mirror_is_judged_by_the_topics_that_it_copies() -> None:
    known = {"apples": profile(), "pears": profile("pears"), "plums": profile("plums")}
    mirror = record_rules.MirrorSpec(
        source_cluster="c1", target_cluster="c2", topic_prefix="", target_topic="copy.{topic}"
    )
    routes = table("apples->c1", "pears->c1", "plums->c2")
    found = arrivals_of_rule(record_rules.RecordRuleSpec(mirror=mirror), routes, known)
    assert [(each.topic, each.place) for each in found] == [
        ("apples", Place("c2", "copy.apples")),
        ("pears", Place("c2", "copy.pears")),
    ]
    content = record_rules.RecordRuleSpec(content=record_rules.ContentRuleSpec(source_cluster="c1", topic="apples"))
    assert arrivals_of_rule(content, routes, known) == []
