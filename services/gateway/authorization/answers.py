"""The answers to requests that are refused as a whole, where these have no error of the whole request."""

from __future__ import annotations

from typing import Any

from services.gateway.authorization.shapes import Refused
from services.gateway.wire import messages as m
from services.gateway.wire.error_words import words_of
from services.gateway.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    describe_log_dirs,
    elect_leaders,
    write_txn_markers,
)


def log_dirs(_: Any, code: int) -> m.DescribeLogDirsResponse:
    """With an error where old versions have one, too."""
    return m.DescribeLogDirsResponse(
        error_code=code, results=[describe_log_dirs.DescribeLogDirsResult(error_code=code, log_dir="")]
    )


def election(message: m.ElectLeadersRequest, code: int) -> m.ElectLeadersResponse:
    results = [
        elect_leaders.ReplicaElectionResult(
            topic.topic, [elect_leaders.PartitionResult(number, code, words_of(code)) for number in topic.partitions]
        )
        for topic in message.topic_partitions or ()
    ]
    return m.ElectLeadersResponse(error_code=code, replica_election_results=results)


def log_dir_moves(message: m.AlterReplicaLogDirsRequest, code: int) -> m.AlterReplicaLogDirsResponse:
    shapes = alter_replica_log_dirs
    return m.AlterReplicaLogDirsResponse(
        results=[
            shapes.AlterReplicaLogDirTopicResult(
                topic.name, [shapes.AlterReplicaLogDirPartitionResult(number, code) for number in topic.partitions]
            )
            for folder in message.dirs
            for topic in folder.topics
        ]
    )


def reassignment(message: m.AlterPartitionReassignmentsRequest, code: int) -> m.AlterPartitionReassignmentsResponse:
    shapes = alter_partition_reassignments
    return m.AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=words_of(code),
        responses=[
            shapes.ReassignableTopicResponse(
                topic.name,
                [
                    shapes.ReassignablePartitionResponse(p.partition_index, code, words_of(code))
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def users(message: m.AlterUserScramCredentialsRequest, code: int) -> m.AlterUserScramCredentialsResponse:
    names = dict.fromkeys([each.name for each in message.deletions] + [each.name for each in message.upsertions])
    result = alter_user_scram_credentials.AlterUserScramCredentialsResult
    return m.AlterUserScramCredentialsResponse(results=[result(name, code, words_of(code)) for name in names])


def markers(message: m.WriteTxnMarkersRequest, code: int) -> m.WriteTxnMarkersResponse:
    shapes = write_txn_markers
    return m.WriteTxnMarkersResponse(
        markers=[
            shapes.WritableTxnMarkerResult(
                marker.producer_id,
                [
                    shapes.WritableTxnMarkerTopicResult(
                        topic.name,
                        [shapes.WritableTxnMarkerPartitionResult(number, code) for number in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


def quotas(message: m.AlterClientQuotasRequest, code: int) -> m.AlterClientQuotasResponse:
    result = alter_client_quotas.EntryResult
    return m.AlterClientQuotasResponse(entries=[result(code, words_of(code), each.entity) for each in message.entries])


def join(message: m.JoinGroupRequest, code: int) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(error_code=code, protocol_name="", member_id=message.member_id)


def with_text(result: type[Any], name: str, of: str = "") -> Refused:
    """The result of an item: its name is in the field `of`, or the item is its name."""
    return lambda item, code: result(
        **{name: getattr(item, of) if of else item, "error_code": code, "error_message": words_of(code)}
    )
