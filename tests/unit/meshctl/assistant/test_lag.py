"""The sentences about lag: each from one fact."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.rpc import instances, topic_moves, topics
from meshctl.assistant.lag import NOTHING_KNOWN, Known, behind, reasons

STABLE, EMPTY = topics.CONSUMER_GROUP_STATE_STABLE, topics.CONSUMER_GROUP_STATE_EMPTY


def position(partition: int, committed: int, end: int, start: int = 0) -> topics.GroupPosition:
    return topics.GroupPosition(
        topic="orders", partition=partition, cluster="c1", committed=committed, start=start, end=end
    )


def group(*positions: topics.GroupPosition, members: int = 1, **how: Any) -> topics.GetGroupResponse:
    state = how.pop("state", STABLE)
    return topics.GetGroupResponse(
        group=topics.ConsumerGroup(name="groups/billing", state=state, home="c1", members=members),
        members=[topics.ConsumerGroupMember(client_id=f"m{number}", partitions=1) for number in range(members)],
        positions=positions,
        **how,
    )


def said(of: topics.GetGroupResponse, **known: Any) -> str:
    return "\n".join(reasons(Known(of, **known)))


def test_lag_is_told_with_the_partitions_that_have_the_most() -> None:
    text = said(group(position(0, 5, 10), position(1, 0, 1_200), position(2, 7, 7)))
    assert "The group is 1205 records behind in 2 of 3 partitions" in text
    assert "the most in orders/1 on c1 1,200, orders/0 on c1 5." in text
    assert NOTHING_KNOWN in text


def test_the_course_of_a_lag_tells_rates_and_since_when() -> None:
    late = topics.PartitionLag(
        topic="orders", partition=1, last=topics.LagPoint(records=1_200, seconds=90), written_per_second=20,
        passed_per_second=5,
    )  # fmt: skip
    late.growing_since.FromSeconds(1_795_953_600)
    text = said(group(position(1, 0, 1_200)), over_time=[late, topics.PartitionLag(topic="orders", partition=2)])
    assert (
        "In the last five minutes 20 records a second were written to orders/1, and the group read 5: falls behind by "
        "15 records/s since 2026-11-29T12:00:00Z. Its next record was written 1.5 min ago." in text
    )
    assert "orders/2" not in text


def test_a_group_that_is_not_behind_needs_no_reason() -> None:
    assert said(group(position(0, 10, 10))) == "The group is not behind in any partition whose end is known."
    assert said(group()) == "The group has committed no offset, so it has no lag that can be counted."


@pytest.mark.parametrize(
    ("state", "members", "sentence"),
    [
        (EMPTY, 0, "Group billing has no member"),
        (STABLE, 0, "Group billing has no member"),
        (topics.CONSUMER_GROUP_STATE_PREPARING_REBALANCE, 2, "Group billing rebalances now"),
        (topics.CONSUMER_GROUP_STATE_DEAD, 2, "about to forget group billing"),
    ],
)
def test_the_state_of_a_group_explains(state: topics.ConsumerGroupState.ValueType, members: int, sentence: str) -> None:
    text = said(group(position(0, 0, 9), state=state, members=members))
    assert sentence in text
    assert NOTHING_KNOWN not in text


def test_members_without_partitions_explain() -> None:
    of = group(position(0, 0, 9))
    of.members[0].partitions = 0
    assert "No member of group billing has a partition." in said(of)


def test_deleted_records_and_unknown_ends_are_told() -> None:
    lost, unknown = position(0, 3, 90, start=40), position(1, 3, -1)
    text = said(group(lost, unknown))
    assert "it committed 3, and the first offset is 40" in text
    assert "The end of 1 partition is not known, orders/1 on c1 for example." in text
    assert (behind(lost), behind(unknown)) == (50, -1)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (instances.INSTANCE_STATE_PAUSED, "Instance billing.one of a sidecar is paused"),
        (instances.INSTANCE_STATE_UNREACHABLE, "Instance billing.one of a sidecar does not reach Kafka"),
        (instances.INSTANCE_STATE_IDLE, "its backend does not ask for records"),
    ],
)
def test_consumers_of_sidecars_that_do_not_read_explain(
    state: instances.InstanceState.ValueType, sentence: str
) -> None:
    held = instances.InstanceStatus(name="instances/billing.one", state=state)
    text = said(group(position(0, 0, 9)), statuses=[held])
    assert sentence in text
    assert NOTHING_KNOWN not in text


def test_moves_of_its_topics_are_told_and_others_are_not() -> None:
    moves = [
        topic_moves.MoveWithRecords(
            spec=topic_moves.TopicMoveSpec(topic=topic, target_cluster="c2"), state=state
        )
        for topic, state in (
            ("orders", topic_moves.TOPIC_MOVE_STATE_CUTTING),
            ("orders", topic_moves.TOPIC_MOVE_STATE_DONE),
            ("returns", topic_moves.TOPIC_MOVE_STATE_COPYING),
        )
    ]  # fmt: skip
    text = said(group(position(0, 0, 9)), moves=moves)
    assert text.count("moves to c2") == 1
    assert "gateways hold it for a moment" in text
    assert NOTHING_KNOWN in text, "a move alone is no reason"


def test_what_control_could_not_ask_is_told() -> None:
    text = said(group(position(0, 0, 9), problems=["cluster c2 does not answer"]), away=["Gateway g1 is away."])
    assert "cluster c2 does not answer" in text
    assert "Gateway g1 is away." in text
