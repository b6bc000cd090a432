"""Replicas lie on brokers that clients do not see: none can be moved, none is on the move."""

from __future__ import annotations

import pytest

from services.gateway.requests import partition_reassignments
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from services.gateway.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.mark.parametrize("version", [0, 1])
def test_replicas_can_not_be_assigned_to_virtual_brokers(version: int) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic("apples", [ReassignablePartition(0, [101, 102]), ReassignablePartition(1, None)]),
            ReassignableTopic("cherries", [ReassignablePartition(0, [101])]),
        ]
    )
    mesh = World({"c1": ["apples"]}).view()
    answer = Playbook(partition_reassignments.handle_alter, request, version, mesh).answer
    found = {(t.name, p.partition_index): p for t in answer.responses for p in t.partitions}
    assert {place: p.error_code for place, p in found.items()} == {
        ("apples", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("apples", 1): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ("cherries", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "reassign on cluster c1 itself" in str(found["apples", 0].error_message)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)


def test_no_partition_is_on_the_move() -> None:
    mesh = World({"c1": ["apples"]}).view()
    answer = Playbook(partition_reassignments.handle_list, ListPartitionReassignmentsRequest(), 0, mesh).answer
    assert answer == ListPartitionReassignmentsResponse(error_message=None)
