"""Stitched logs: a cut adds a part, or is taken back; an expired part leaves; offsets are shifted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from mesh.record_rules import RecordRule
from mesh.routing import Place, RoutingTable, Stay
from mesh.routing.policies import Policies
from mesh.rpc import record_rules, replays, stitches, topic_moves
from mesh.stitches.codec import log_from_proto
from mesh.stitches.words import log_change_text
from services.control.domain.clusters.clusters import Clusters
from services.control.domain.errors import NotAllowed, Refusal
from services.control.domain.log_ranges import LogRange
from services.control.domain.stitches import logs
from services.control.domain.stitches.retention import SLACK, Retention, settings_of_old
from services.control.domain.topic_moves.moves import Side, check_sides, source_of
from services.control.domain.topic_moves.stitched_certificates import evidence_of, stitched_differences
from services.control.domain.topic_moves.users_of_topics import refuse_replays, refuse_shares, refuse_users
from tests.unit.control.worlds import table

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
C1, C2 = Place("c1", "apples"), Place("c2", "apples")
FIRST, SECOND = Stay("c1", 1, "apples"), Stay("c2", 1, "apples")


def stitched(log: stitches.StitchedLog | None, cluster: str = "c1") -> RoutingTable:
    """The topic is on the cluster, for the first time, and has this log."""
    plain = table(f"apples->{cluster}")
    policy = None if log is None else stitches.StitchPolicy(logs=[log])
    return RoutingTable(1, plain.clusters.values(), plain.versions, policies=Policies(stitch_policy=policy))


def log(*parts: tuple[str, int, list[tuple[int, int]]]) -> stitches.StitchedLog:
    """Each part by cluster, visit, and start and shift of its partitions."""
    return stitches.StitchedLog(
        topic="apples",
        parts=[
            stitches.LogPart(
                cluster_name=cluster, topic="apples", visit=visit,
                partitions=[stitches.LogPartPartition(start=start, shift=shift) for start, shift in partitions],
            )
            for cluster, visit, partitions in parts
        ],
    )  # fmt: skip


OLD = ("c1", 1, [(0, 0), (0, 0)])
NEW = ("c2", 1, [(100, 100), (7, 7)])
BACK = ("c1", 2, [(130, 30), (9, 2)])


def read(of: stitches.StitchedLog) -> list[tuple[str, int, list[tuple[int, int]]]]:
    return [
        (part.cluster_name, part.visit, [(each.start, each.shift) for each in part.partitions]) for part in of.parts
    ]


def test_the_first_cut_names_the_part_that_was_there_and_the_one_to_come() -> None:
    after = logs.continued(stitched(None), "apples", SECOND, {0: 100, 1: 7}, {0: 0, 1: 0}, NOW)
    assert read(after) == [OLD, NEW]
    assert not after.parts[0].HasField("begin_time")
    assert after.parts[1].begin_time.ToDatetime(UTC) == NOW


def test_a_further_cut_counts_from_the_shift_of_the_part_before() -> None:
    on_c2 = stitched(log(OLD, NEW), "c2")
    after = logs.continued(on_c2, "apples", Stay("c1", 2, "apples"), {0: 30, 1: 2}, {0: 100, 1: 7}, NOW)
    assert read(after) == [OLD, NEW, BACK]


def test_the_next_attempt_replaces_the_part_of_a_cut_that_never_came() -> None:
    after = logs.continued(stitched(log(OLD, NEW)), "apples", SECOND, {0: 105, 1: 7}, {0: 0, 1: 0}, NOW)
    assert read(after) == [OLD, ("c2", 1, [(105, 105), (7, 7)])]


@pytest.mark.parametrize(
    ("before", "cluster", "left"),
    [
        (log(OLD, NEW), "c1", None),
        (log(OLD, NEW, BACK), "c2", [OLD, NEW]),
        (log(NEW, BACK), "c2", [NEW]),
    ],
)
def test_a_cut_that_was_given_up_is_taken_back(
    before: stitches.StitchedLog, cluster: str, left: list[object] | None
) -> None:
    event = logs.taken_back(stitched(before, cluster), "apples")
    assert event is not None
    [change] = event.changes
    assert (read(change.log) if change.HasField("log") else None) == left


def test_nothing_is_taken_back_where_no_cut_was_given_up() -> None:
    assert logs.taken_back(stitched(log(OLD, NEW), "c2"), "apples") is None
    assert logs.taken_back(stitched(None), "apples") is None


@pytest.mark.parametrize(
    ("parts", "target", "there", "says"),
    [
        ((), C2, {0: LogRange(0, 0)}, ""),
        ((), C2, {0: LogRange(5, 5)}, ""),
        ((), C2, {0: LogRange(5, 6)}, "partition 0 of 'apples' on 'c2' has records that are not of topic 'apples'"),
        ((OLD, NEW), C1, {0: LogRange(3, 100), 1: LogRange(7, 7)}, ""),
        ((OLD, NEW), C1, {0: LogRange(3, 101), 1: LogRange(7, 7)}, "ends at 101, and its part of the log ended at 100"),
        ((OLD, NEW), C1, {0: LogRange(0, 0), 1: LogRange(0, 0)}, "ends at 0, and its part of the log ended at 100"),
        ((NEW, BACK), C2, {0: LogRange(0, 30), 1: LogRange(0, 2)}, ""),
    ],
)
def test_a_target_is_empty_or_ends_where_its_part_ended(
    parts: tuple[tuple[str, int, list[tuple[int, int]]], ...], target: Place, there: Mapping[int, LogRange], says: str
) -> None:
    known = log_from_proto(log(*parts)).parts
    if not says:
        logs.check_target("apples", known, target, there)
        return
    with pytest.raises(NotAllowed, match=says) as refusal:
        logs.check_target("apples", known, target, there)
    assert refusal.value.kind == "TARGET_HAS_RECORDS"


def test_a_log_has_at_most_16_parts_and_keeps_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    many = log(*((f"c{number}", 1, [(0, 0)]) for number in range(3, 18)), ("c1", 1, [(0, 0)]))
    with pytest.raises(NotAllowed, match="has 16 parts, and no more are possible"):
        logs.check_room(stitched(many), "apples", 1)
    with pytest.raises(NotAllowed, match="has 3 partitions on 'c2', and its log has 2"):
        logs.check_room(stitched(log(OLD, NEW), "c2"), "apples", 3)
    logs.check_room(stitched(log(OLD, NEW), "c2"), "apples", 2)
    monkeypatch.setattr(logs, "MOST_ENTRIES", 7)
    with pytest.raises(NotAllowed, match="1 stitched logs with 4 partitions in their parts"):
        logs.check_room(stitched(log(OLD, NEW), "c2"), "apples", 2)


@pytest.mark.parametrize(
    ("oldest", "leaves"),
    [
        ({0: LogRange(99, 100), 1: LogRange(7, 7)}, False),
        ({0: LogRange(100, 100)}, False),
        ({0: LogRange(100, 100), 1: LogRange(7, 7)}, True),
        (None, True),
    ],
)
def test_the_oldest_part_leaves_when_its_cluster_has_nothing_of_it(
    oldest: Mapping[int, LogRange] | None, leaves: bool
) -> None:
    event = logs.dissolved(stitched(log(OLD, NEW), "c2"), "apples", oldest)
    assert (event is not None) is leaves
    if event is not None:
        assert read(event.changes[0].log) == [NEW]


def test_the_last_part_and_that_of_a_cut_to_come_stay() -> None:
    assert logs.dissolved(stitched(log(NEW), "c2"), "apples", None) is None
    assert logs.dissolved(stitched(log(OLD, NEW)), "apples", None) is None, "the topic is still on c1"


def test_only_logs_with_an_old_part_are_watched_and_none_that_moves() -> None:
    on_c2 = stitched(log(OLD, NEW), "c2")
    assert [(topic, part.cluster) for topic, part in logs.to_watch(on_c2, ())] == [("apples", "c1")]
    assert not list(logs.to_watch(on_c2, {"apples"}))
    assert not list(logs.to_watch(stitched(log(NEW), "c2"), ()))


@pytest.mark.parametrize(
    ("old", "seen"),
    [
        ({0: {0: 0, 1: 0}}, {0: LogRange(0, 110), 1: LogRange(0, 8)}),
        ({0: {0: 20, 1: 7}}, {0: LogRange(20, 110), 1: LogRange(7, 8)}),
        ({}, {0: LogRange(0, 110), 1: LogRange(0, 8)}),
    ],
)
def test_clients_see_the_log_from_the_first_record_of_its_oldest_part_to_the_end_of_the_last(
    old: Mapping[int, Mapping[int, int]], seen: Mapping[int, LogRange]
) -> None:
    parts = log_from_proto(log(OLD, NEW)).parts
    assert logs.as_clients_see(parts, {0: LogRange(0, 10), 1: LogRange(0, 1)}, old) == seen


@pytest.mark.parametrize(
    ("settings", "is_left", "sentence"),
    [
        ({"retention.ms": "604800000"}, True, "at the latest 2026-12-07 03:10 UTC"),
        ({"retention.ms": "-1"}, True, "never: retention.ms is -1"),
        ({"retention.ms": "9223372036854775807"}, True, "never: retention.ms is 9223372036854775807"),
        ({}, True, "not known: the cluster does not tell retention.ms"),
        ({"retention.ms": "-1"}, False, "nothing is left there"),
    ],
)
def test_an_old_part_says_when_its_cluster_may_be_switched_off(
    settings: Mapping[str, str], is_left: bool, sentence: str
) -> None:
    found = Retention.of(settings, NOW, is_left=is_left)
    assert found.sentence == sentence
    assert found.latest == (NOW + timedelta(days=7) + SLACK if sentence.startswith("at the latest") else None)


def test_rules_and_offsets_of_one_cluster_are_refused_for_a_stitched_topic_alone() -> None:
    known = stitched(log(OLD, NEW), "c2")
    with pytest.raises(NotAllowed, match="meshctl topic move apples --to CLUSTER --stitch"):
        logs.refuse_switches(known, {"pears", "apples"})
    logs.refuse_switches(known, {"pears"})
    logs.refuse_switches(known, {"apples"}, allowed="apples")
    with pytest.raises(NotAllowed, match="the offsets of one cluster only"):
        logs.refuse_offsets(known, "apples")
    logs.refuse_offsets(known, "pears")


def test_a_cluster_with_a_part_is_not_removed() -> None:
    known = stitched(log(OLD, NEW), "c2")
    with pytest.raises(NotAllowed, match="parts of the logs of stitched topics: apples"):
        Clusters(known, 4).remove("c1", (), logs.topics_on(known, "c1"))
    assert not logs.topics_on(known, "c3")


WEEK = {"retention.ms": "604800000", "retention.bytes": "-1"}
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}


def sized(number: int) -> dict[str, str]:
    return {**WEEK, "retention.bytes": str(number)}


def old_settings(settings: Mapping[str, str], sizes: Mapping[Place, Mapping[int, int]], *parts: object) -> object:
    return settings_of_old(log_from_proto(log(*parts)).parts, settings, sizes)  # type: ignore[arg-type]


def test_the_oldest_part_has_the_time_of_the_topic_and_the_parts_behind_it_keep_everything_meanwhile() -> None:
    third = ("c3", 1, [(150, 150), (20, 20)])
    assert old_settings(WEEK, {}, OLD, NEW) == {C1: WEEK}
    assert old_settings(WEEK, {}, OLD, NEW, third) == {C1: WEEK, C2: KEPT}
    assert old_settings(WEEK, {}, NEW, third) == {C2: WEEK}


@pytest.mark.parametrize(
    ("behind", "left"),
    [
        ({0: 300, 1: 400}, 700),
        ({0: 300}, 1000),
        ({}, 1000),
        ({0: 1000, 1: 1000}, 0),
        ({0: 5000, 1: 6000}, 0),
    ],
)
def test_the_oldest_part_may_have_the_bytes_that_the_smallest_partition_behind_it_leaves(
    behind: Mapping[int, int], left: int
) -> None:
    assert old_settings(sized(1000), {C2: behind}, OLD, NEW) == {C1: sized(left)}


def test_a_place_of_the_present_part_has_the_settings_of_the_operator() -> None:
    assert old_settings(sized(1000), {}, OLD, NEW, BACK) == {C2: KEPT}
    assert old_settings(sized(1000), {C1: {0: 200, 1: 100}}, NEW, BACK) == {C2: sized(900)}


def test_a_place_with_two_old_parts_is_retained_as_one_log_and_counts_once() -> None:
    again = ("c2", 2, [(150, 50), (20, 13)])
    sizes = {C1: {0: 100, 1: 100}, C2: {0: 10, 1: 10}}
    assert old_settings(sized(1000), sizes, OLD, NEW, BACK, again) == {C1: sized(1000)}


def spec(kind: str = "STITCH", **fields: object) -> topic_moves.TopicMoveSpec:
    number = topic_moves.TopicMoveKind.Value(f"TOPIC_MOVE_KIND_{kind}")
    return topic_moves.TopicMoveSpec(topic="apples", target_cluster="c1", kind=number, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (spec("COPY"), "leave --copy out"),
        (spec(bytes_per_second=1), "bounds a copy, and a stitched move copies nothing"),
        (topic_moves.TopicMoveSpec(topic="apples", target_cluster="c1", kind=9), "no kind of move"),  # type: ignore[arg-type]
    ],
)
def test_moves_that_do_not_fit_a_stitched_log_are_refused(asked: topic_moves.TopicMoveSpec, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        source_of(asked, stitched(log(OLD, NEW), "c2"))


def test_a_stitched_topic_moves_on_by_stitching() -> None:
    assert source_of(spec(), stitched(log(OLD, NEW), "c2")) == (C2, C1)


def test_a_topic_with_the_time_of_its_brokers_may_be_stitched_and_a_compacted_one_may_not() -> None:
    for_brokers = Side(C1, 1, {"message.timestamp.type": "LogAppendTime"})
    check_sides("apples", for_brokers, Side(C2, 0, {}), stitched=True)
    with pytest.raises(NotAllowed, match="would remove a record of the old part"):
        check_sides("apples", Side(C1, 1, {"cleanup.policy": "compact"}), Side(C2, 0, {}), stitched=True)


def mirror(source: str, target: str, topic: str) -> RecordRule:
    way = record_rules.MirrorSpec(source_cluster=source, target_cluster=target, topic=topic)
    return RecordRule(record_rules.RecordRuleSpec(record_rule_id="m", mirror=way), 1, 1, "ann", NOW)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (mirror("c1", "c3", "apples"), "'m' reads topic 'apples' on 'c1'"),
        (mirror("c3", "c1", "apples"), "'m' writes topic 'apples' on 'c1'"),
        (mirror("c3", "c2", "apples"), "'m' writes topic 'apples' on 'c2'"),
        (mirror("c2", "c3", "apples"), ""),
        (mirror("c1", "c2", "pears"), ""),
    ],
)
def test_a_topic_that_a_record_rule_uses_is_refused(rule: RecordRule, says: str) -> None:
    if not says:
        refuse_users("apples", (C1, C2), [rule])
        return
    with pytest.raises(NotAllowed, match=says):
        refuse_users("apples", (C1, C2), [rule])


def test_a_topic_of_an_open_replay_or_of_a_share_group_is_refused() -> None:
    by_name = replays.Replay(name="replays/1", spec=replays.ReplaySpec(ranges=[replays.ReplayRange(topic="apples")]))
    by_place = replays.Replay(
        name="replays/2", places=[replays.ReplayPlace(topic="fruit", cluster="c2", upstream_topic="apples")]
    )
    other = replays.Replay(name="replays/3", spec=replays.ReplaySpec(ranges=[replays.ReplayRange(topic="pears")]))
    for replay in (by_name, by_place):
        with pytest.raises(NotAllowed, match=f"{replay.name} is open and about topic 'apples'"):
            refuse_replays("apples", (C1, C2), [other, replay])
    refuse_replays("apples", (C1, C2), [other])
    with pytest.raises(NotAllowed, match="share groups read topic 'apples' on 'c1': packing"):
        refuse_shares("apples", C1, {"packing": {"apples"}, "others": {"pears"}})
    refuse_shares("apples", C1, {"others": {"pears"}})


MOVE = topic_moves.MoveWithRecords(
    name="topicmoves/1",
    spec=topic_moves.TopicMoveSpec(topic="apples", target_cluster="c2", kind=topic_moves.TOPIC_MOVE_KIND_STITCH),
    copy=record_rules.CopySpec(source_cluster="c1", topic="apples", target_cluster="c2", target_topic="apples"),
    cuts=[
        topic_moves.TopicMoveCut(partition=0, end=100, base=0, client_offset=100),
        topic_moves.TopicMoveCut(partition=1, end=7, base=0, client_offset=7),
    ],
)
ENDED = {0: LogRange(0, 100), 1: LogRange(7, 7)}
BEGUN = {0: LogRange(0, 5), 1: LogRange(0, 0)}


@pytest.mark.parametrize(
    ("source", "target", "parts", "goes_on", "says"),
    [
        (ENDED, BEGUN, (OLD, NEW), False, []),
        (ENDED, BEGUN, (NEW,), False, []),
        ({**ENDED, 0: LogRange(0, 101)}, BEGUN, (OLD, NEW), False, ["apples-0 on 'c1' ends at 101, and the cut is at"]),
        ({**ENDED, 0: LogRange(0, 101)}, BEGUN, (OLD, NEW), True, []),
        (
            {**ENDED, 0: LogRange(0, 99)},
            BEGUN,
            (OLD, NEW),
            True,
            ["apples-0 on 'c1' ends at 99, and the cut is at 100"],
        ),
        ({1: ENDED[1]}, BEGUN, (OLD, NEW), False, ["partition 0 was not found on 'c1'"]),
        (ENDED, BEGUN, (OLD, ("c2", 1, [(90, 90), (7, 7)])), False, ["begins at 0, which clients see as 90"]),
        (ENDED, BEGUN, (), False, ["does not end with a part on 'c2'"]),
    ],
)
def test_a_certificate_tells_what_is_not_as_the_cut_left_it(
    source: Mapping[int, LogRange],
    target: Mapping[int, LogRange],
    parts: tuple[tuple[str, int, list[tuple[int, int]]], ...],
    goes_on: bool,
    says: list[str],
) -> None:
    known = stitched(log(*parts) if parts else None, "c2")
    found = list(stitched_differences(MOVE, source, target, known, goes_on=goes_on))
    assert len(found) == len(says), found
    assert all(text in told for text, told in zip(says, found, strict=True)), found
    assert [(each.end, each.base, each.client_offset) for each in evidence_of(MOVE)] == [(100, 0, 100), (7, 0, 7)]


def test_a_change_of_a_log_reads_as_a_sentence() -> None:
    assert log_change_text(stitches.StitchedLogChange(topic="apples", log=log(OLD, NEW))) == (
        "the log of topic apples is on c1, then c2"
    )
    gone = stitches.StitchedLogChange(topic="apples")
    assert log_change_text(gone) == "the log of topic apples is that of its cluster"
