"""Fail-backs of clusters: the state that follows from events, comparisons of logs, and the refusals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from mesh.rpc import drains, events, fail_backs, record_rules, standbys, topic_moves
from services.control.domain.drains.drains import Drains
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.fail_backs.fail_backs import (
    APPENDED,
    CANCELLED,
    COPY_ON,
    ENDED,
    LEFT,
    MOST_BYTES_OF_TOPICS,
    MOVED,
    MOVING,
    READY,
    RECONCILING,
    RECREATE,
    RECREATING,
    TO_TOPIC,
    TOPIC_RECONCILING,
    WAITING,
    Ends,
    FailBacks,
    beginning,
    changed,
    closed,
    end_of,
    fold_fail_backs,
    get,
    in_events,
    left,
    refuse_cut,
    started,
    to_compare,
    with_drain,
    with_found,
)
from services.control.domain.standbys.standbys import FAILED_OVER, FAILING_OVER, Standbys
from services.control.domain.topic_moves.moves import COPYING, CUTTING, TopicMoves

NAME = "failbacks/c1"
FAIL_OVER = datetime(2026, 11, 30, 9, tzinfo=UTC)
MANY_TOPICS = 6_000


def table_of(**places: str) -> RoutingTable:
    clusters = [UpstreamCluster(name, (f"{name}:9092",), ordinal=n) for n, name in enumerate(("c1", "c2"), 1)]
    rules = [ForwardingRule(topic, ExactName(topic), cluster) for topic, cluster in places.items()]
    return RoutingTable(7, clusters, (RuleVersion(rule, float(place), 1) for place, rule in enumerate(rules)))


def standby_of(*topics: str, state: standbys.StandbyState.ValueType = FAILED_OVER) -> Standbys:
    found = standbys.Standby(
        name="standbys/c1", spec=standbys.StandbySpec(source_cluster="c1", target_cluster="c2"), state=state,
        topics=[
            standbys.StandbyTopic(
                topic=topic, copy=record_rules.CopySpec(source_cluster="c1", topic=topic, target_topic=topic),
                partitions=[standbys.StandbyPartition(partition=0, position=10, end=12)],
            )
            for topic in topics
        ],
    )  # fmt: skip
    found.fail_over_time.FromDatetime(FAIL_OVER)
    return {found.name: found}


def begun(
    known: FailBacks | None = None,
    of: Standbys | None = None,
    table: RoutingTable | None = None,
    spec: fail_backs.FailBackSpec | None = None,
) -> fail_backs.FailBack:
    return started(
        known or {}, standby_of("a", "b") if of is None else of, spec or fail_backs.FailBackSpec(cluster="c1"),
        table or table_of(a="c2", b="c2"), 7, "ann", "it is back", FAIL_OVER,
    )  # fmt: skip


def folded(*payloads: object) -> FailBacks:
    known: FailBacks = {}
    for position, payload in enumerate(payloads, 1):
        event = events.Event(position=position)
        name = {
            events.FailBackStarted: "fail_back_started",
            events.FailBackTopicsSet: "fail_back_topics_set",
            events.FailBackMoving: "fail_back_moving",
            events.FailBackEnded: "fail_back_ended",
        }[type(payload)]
        getattr(event, name).CopyFrom(payload)
        known = fold_fail_backs(known, event)
    return known


def topic_of(found: fail_backs.FailBack, name: str) -> fail_backs.FailBackTopic:
    return next(each for each in found.topics if each.topic == name)


def topics_set(*topics: fail_backs.FailBackTopic) -> events.FailBackTopicsSet:
    return events.FailBackTopicsSet(name=NAME, topics=topics)


def ended_with(*topics: fail_backs.FailBackTopic) -> FailBacks:
    return folded(*beginning(begun()), topics_set(*topics), events.FailBackEnded(name=NAME, state=CANCELLED))


def drain_of(state: drains.DrainState.ValueType, *topics: tuple[str, int, str]) -> drains.Drain:
    return drains.Drain(
        name="drains/1", state=state,
        topics=[drains.DrainTopic(topic=topic, state=said, move=move) for topic, said, move in topics],  # type: ignore[arg-type]  # an enum's number
    )  # fmt: skip


def moving() -> fail_backs.FailBack:
    ready = [changed(each, state=READY) for each in begun().topics]
    known = folded(*beginning(begun()), topics_set(*ready), events.FailBackMoving(name=NAME, drain="drains/1"))
    return known[NAME]


def test_a_fail_back_has_the_topics_of_the_standby_and_waits_for_the_rules_in_force() -> None:
    found = get(folded(*beginning(begun())), NAME)
    assert [(each.topic, each.state) for each in found.topics] == [("a", WAITING), ("b", WAITING)]
    assert (found.state, found.revision, found.clients_cluster) == (RECONCILING, 7, "c2")
    assert found.spec.strays == TO_TOPIC
    assert found.topics[0].partitions[0].copied_end == 10


def test_topics_that_are_back_already_stay_there() -> None:
    assert [each.topic for each in begun(table=table_of(a="c1", b="c2")).topics] == ["b"]
    with pytest.raises(NotAllowed, match="no topic that is not back"):
        begun(table=table_of(a="c1", b="c1"))


@pytest.mark.parametrize(
    ("of", "kind"), [(standby_of("a", state=FAILING_OVER), "NOT_FAILED_OVER"), (standby_of(), "NOTHING_TO_FAIL_BACK")]
)
def test_a_cluster_that_has_not_failed_over_does_not_fail_back(of: Standbys, kind: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        begun(of=of)
    assert refused.value.kind == kind


def test_a_second_fail_back_of_a_cluster_waits_for_the_end_of_the_first() -> None:
    with pytest.raises(NotAllowed) as refused:
        begun(folded(*beginning(begun())))
    assert refused.value.kind == "FAIL_BACK_IS_OPEN"
    assert begun(ended_with()).state == RECONCILING


def test_unknown_clusters_and_fields_that_control_sets_are_refused_by_name() -> None:
    with pytest.raises(InvalidField, match=r"spec.cluster: cluster 'c9'"):
        begun(spec=fail_backs.FailBackSpec(cluster="c9"))
    with pytest.raises(InvalidField, match=r"spec.moves.topics"):
        begun(spec=fail_backs.FailBackSpec(cluster="c1", moves=drains.DrainSpec(topics="x*")))
    with pytest.raises(Unknown):
        begun(of={})


def test_a_look_begins_where_the_copy_or_the_look_before_ended() -> None:
    topic = to_compare(begun().topics[0], {0: Ends(cluster=15, clients=30, strays=4)}, "a.strays")
    [part] = topic.partitions
    assert (topic.state, topic.strays_topic) == (TOPIC_RECONCILING, "a.strays")
    assert (part.start, part.end, part.clients_end, part.strays_start) == (10, 15, 30, 4)
    again = to_compare(with_found(topic, {0: (5, 1)}), {0: Ends(cluster=18, clients=40, strays=9)}, "a.strays")
    [part] = again.partitions
    assert (part.start, part.end, part.clients_end, part.strays_start) == (15, 18, 40, 9)
    assert (part.strays, part.resent) == (5, 1)


def test_a_topic_without_a_record_behind_the_copy_needs_no_place_for_strays() -> None:
    assert to_compare(begun().topics[0], {0: Ends(cluster=10, clients=30, strays=0)}, "a.strays").strays_topic == ""


@pytest.mark.parametrize(("way", "state"), [(RECREATE, RECREATING), (COPY_ON, READY)])
def test_a_log_that_is_no_prefix_is_made_again_with_its_settings(
    way: fail_backs.FailBackWay.ValueType, state: fail_backs.FailBackTopicState.ValueType
) -> None:
    topic = to_compare(begun().topics[0], {0: Ends(cluster=15, clients=30, strays=4)}, "a.strays")
    after = closed(changed(topic, way=way), {"retention.ms": "1000"} if way == RECREATE else {})
    assert after.state == state
    assert dict(after.settings) == ({"retention.ms": "1000"} if way == RECREATE else {})
    assert [(each.start, each.end) for each in after.partitions] == [(0, 0)]


def test_a_fail_back_goes_on_with_the_look_and_the_place_of_one_that_was_cancelled() -> None:
    look = to_compare(begun().topics[0], {0: Ends(cluster=15, clients=30, strays=4)}, "a.strays")
    spec = fail_backs.FailBackSpec(cluster="c1", strays=APPENDED)
    assert topic_of(begun(ended_with(look), spec=spec), "a") == look
    assert topic_of(begun(ended_with(left(look, "too large")), spec=spec), "a") == look
    made_again = changed(look, state=RECREATING, way=RECREATE)
    assert topic_of(begun(ended_with(made_again)), "a") == made_again


def test_a_fail_back_looks_anew_at_a_topic_whose_strays_were_in_their_place_and_keeps_their_number() -> None:
    look = to_compare(begun().topics[0], {0: Ends(cluster=15, clients=30, strays=4)}, "a.strays")
    ready = changed(closed(with_found(look, {0: (5, 2)}), {}), state=READY, way=RECREATE)
    found = topic_of(begun(ended_with(ready)), "a")
    assert (found.state, found.way, found.partitions[0].end) == (WAITING, 0, 0)
    assert (found.partitions[0].strays, found.partitions[0].resent, found.strays_topic) == (5, 2, "a.strays")


def test_another_fail_over_has_looks_of_its_own() -> None:
    look = to_compare(begun().topics[0], {0: Ends(cluster=15, clients=30, strays=4)}, "a.strays")
    of = standby_of("a")
    of["standbys/c1"].fail_over_time.FromDatetime(datetime(2027, 1, 1, tzinfo=UTC))
    assert topic_of(begun(ended_with(look), of=of), "a").state == WAITING


def test_the_topics_follow_their_drain_to_its_end() -> None:
    moved, waits = drains.DRAIN_TOPIC_STATE_MOVED, drains.DRAIN_TOPIC_STATE_WAITING
    running = drain_of(drains.DRAIN_STATE_RUNNING, ("a", moved, ""), ("b", waits, ""))
    known = Drains(open={running.name: running})
    found = moving()
    assert (found.state, end_of(found, known)) == (MOVING, None)
    assert [(each.topic, each.state) for each in with_drain(found, known)] == [("a", MOVED), ("b", READY)]
    for state, end in ((drains.DRAIN_STATE_DONE, ENDED), (drains.DRAIN_STATE_CANCELLED, CANCELLED)):
        over = drain_of(state, ("a", moved, ""), ("b", waits, ""))
        known = Drains(ended={over.name: over})
        assert end_of(found, known) == end
        assert [(each.topic, each.state) for each in with_drain(found, known)] == [("a", MOVED), ("b", LEFT)]
    assert {each.state for each in with_drain(found, Drains())} == {LEFT}


@pytest.mark.parametrize(
    ("state", "refused"), [(COPYING, False), (CUTTING, True), (topic_moves.TOPIC_MOVE_STATE_DONE, True)]
)
def test_a_fail_back_is_cancelled_up_to_the_first_cut(
    state: topic_moves.TopicMoveState.ValueType, refused: bool
) -> None:
    drain = drain_of(drains.DRAIN_STATE_RUNNING, ("a", drains.DRAIN_TOPIC_STATE_MOVING, "topicmoves/1"))
    move = topic_moves.MoveWithRecords(name="topicmoves/1", state=state)
    moves = TopicMoves(open={move.name: move})
    if refused:
        with pytest.raises(NotAllowed, match="is back already"):
            refuse_cut(moving(), Drains(open={drain.name: drain}), moves)
    else:
        assert refuse_cut(moving(), Drains(open={drain.name: drain}), moves) == ["topicmoves/1"]


def test_a_fail_back_that_has_ended_is_not_cancelled() -> None:
    with pytest.raises(NotAllowed) as refused:
        refuse_cut(ended_with()[NAME], Drains(), TopicMoves())
    assert refused.value.kind == "TOO_LATE_FOR_FAIL_BACK"


def test_many_topics_are_in_several_events_of_a_bounded_size() -> None:
    many: Sequence[str] = [f"topic-{number:04d}" for number in range(MANY_TOPICS)]
    found = begun(of=standby_of(*many), table=table_of())
    first, *rest = beginning(found)
    assert isinstance(first, events.FailBackStarted)
    assert not first.fail_back.topics
    assert len(rest) > 1
    assert all(each.ByteSize() < 2 * MOST_BYTES_OF_TOPICS for each in rest)
    assert [each.topic for each in get(folded(first, *rest), NAME).topics] == many
    assert list(in_events(NAME, [])) == []
