"""How far the audit is, as it is told: up to which time everything of a partition is in the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from services.pipeline.auditing.progress import PartitionState, partition_states
from services.pipeline.kafka.positions import PartitionLog, Position, TopicLog, TopicPosition

LOOKED = datetime(2026, 11, 22, 12, tzinfo=UTC)
BEFORE = LOOKED - timedelta(minutes=5)
TOPIC = "c1/sidecar-audit"


def at(*offsets: int, topic_id: str = "id-1") -> Position:
    return {TOPIC: TopicPosition(topic_id, dict(enumerate(offsets)))}


def log(*bounds: tuple[int, int]) -> dict[str, TopicLog]:
    return {TOPIC: TopicLog("id-1", {number: PartitionLog(*each) for number, each in enumerate(bounds)})}


def test_who_has_reached_the_end_is_complete_up_to_the_time_of_the_look() -> None:
    assert partition_states(at(50), log((0, 50)), LOOKED, {(TOPIC, 0): BEFORE}) == {
        (TOPIC, 0): PartitionState(50, 50, LOOKED)
    }


def test_who_is_behind_is_complete_up_to_what_is_stored() -> None:
    assert partition_states(at(40), log((0, 50)), LOOKED, {(TOPIC, 0): BEFORE}) == {
        (TOPIC, 0): PartitionState(40, 50, BEFORE)
    }


def test_a_clock_that_is_ahead_promises_nothing() -> None:
    ahead = {(TOPIC, 0): LOOKED + timedelta(hours=20)}
    assert partition_states(at(40), log((0, 50)), LOOKED, ahead)[TOPIC, 0].complete_until == LOOKED


def test_of_who_has_read_nothing_yet_it_is_said_how_much_there_is() -> None:
    assert partition_states({}, log((10, 50)), LOOKED, {}) == {(TOPIC, 0): PartitionState(10, 50, None)}


def test_an_empty_partition_is_complete() -> None:
    assert partition_states({}, log((50, 50)), LOOKED, {}) == {(TOPIC, 0): PartitionState(50, 50, LOOKED)}


def test_a_batch_that_was_stored_while_the_ends_were_asked_for_is_no_negative_backlog() -> None:
    assert partition_states(at(60), log((0, 50)), LOOKED, {}) == {(TOPIC, 0): PartitionState(60, 60, LOOKED)}


def test_offsets_of_a_topic_that_was_created_again_mean_nothing() -> None:
    assert partition_states(at(40, topic_id="id-0"), log((0, 50)), LOOKED, {}) == {
        (TOPIC, 0): PartitionState(0, 50, None)
    }


def test_a_topic_that_is_gone_is_not_waited_for() -> None:
    assert partition_states(at(40), {}, LOOKED, {}) == {}
