"""The operations that each API needs, and how it is refused. Read it beside Kafka's KafkaApis and ControllerApis.

An API that has no row here is refused where the policy is enforced. A row names what it needs in the order of the
checks. A guard of its own is named where the answer is more than an error for each item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mesh.acls import Operation, ResourceType
from services.gateway.authorization import administration, answers, groups, records, topics
from services.gateway.authorization.asking import Asking, Guard
from services.gateway.authorization.shapes import cluster, cluster_or, each_topic, needs, rows, top, whole
from services.gateway.requests.plan import Plan
from services.gateway.wire import messages as m
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.error_words import words_of
from services.gateway.wire.messages import (
    alter_configs,
    alter_share_group_offsets,
    consumer_group_describe,
    create_partitions,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    describe_configs,
    describe_groups,
    describe_producers,
    incremental_alter_configs,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_for_leader_epoch,
    share_group_describe,
    streams_group_describe,
    txn_offset_commit,
)

TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DELETE, ALTER = Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER
DESCRIBE = Operation.DESCRIBE

_READ_GROUP = needs(READ, GROUP, "group_id")
_WRITE_TRANSACTION = needs(WRITE, TRANSACTION, "transactional_id")


def _free(asking: Asking) -> Plan:
    """Every client may do this."""
    return (yield from asking.pass_on())


def _group_member(request: type[Any], response: type[Any]) -> Guard:
    return whole(request, _READ_GROUP, refused=top(response))


def _heartbeat(request: type[Any], response: type[Any]) -> Guard:
    """The heartbeat of a member whose subscription the coordinator knows."""
    subscribed = each_topic(DESCRIBE, lambda message: message.subscribed_topic_names or ())
    return whole(request, _READ_GROUP, subscribed, refused=top(response))


def _by_cluster(operation: Operation, request: type[Any], response: type[Any], **given: Any) -> Guard:
    return whole(request, cluster(operation), refused=top(response, **given))


_lo, _le, _dp, _dr = list_offsets, offset_for_leader_epoch, describe_producers, delete_records
_oc, _od, _tc = offset_commit, offset_delete, txn_offset_commit
_as, _ds = alter_share_group_offsets, delete_share_group_offsets

GUARDS: Final[Mapping[int, Guard]] = {
    # what a client says before, or of itself
    ApiKey.API_VERSIONS: _free,
    ApiKey.SASL_HANDSHAKE: _free,
    ApiKey.SASL_AUTHENTICATE: _free,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _free,
    ApiKey.PUSH_TELEMETRY: _free,
    # the mesh: clients see what they may describe
    ApiKey.METADATA: topics.guard_metadata,
    ApiKey.DESCRIBE_CLUSTER: topics.guard_describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.guard_describe_topic_partitions,
    ApiKey.FIND_COORDINATOR: groups.guard_find_coordinator,
    # records
    ApiKey.PRODUCE: records.guard_produce,  # WRITE topic, WRITE transactional id
    ApiKey.FETCH: records.guard_fetch,  # READ topic; of a replica CLUSTER_ACTION cluster
    ApiKey.LIST_OFFSETS: rows(
        m.ListOffsetsRequest,
        m.ListOffsetsResponse,
        ("topics", "topics"),
        needs(DESCRIBE, TOPIC, "name"),
        lambda topic, code: _lo.ListOffsetsTopicResponse(
            topic.name,
            [
                _lo.ListOffsetsPartitionResponse(p.partition_index, code, timestamp=-1, offset=-1)
                for p in topic.partitions
            ],
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: rows(
        m.OffsetForLeaderEpochRequest,
        m.OffsetForLeaderEpochResponse,
        ("topics", "topics"),
        cluster_or(Operation.CLUSTER_ACTION, needs(DESCRIBE, TOPIC, "topic")),
        lambda topic, code: _le.OffsetForLeaderTopicResult(
            topic.topic, [_le.EpochEndOffset(code, each.partition) for each in topic.partitions]
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: rows(
        m.DescribeProducersRequest,
        m.DescribeProducersResponse,
        ("topics", "topics"),
        needs(READ, TOPIC, "name"),
        lambda topic, code: _dp.TopicResponse(
            topic.name, [_dp.PartitionResponse(each, code, words_of(code)) for each in topic.partition_indexes]
        ),
    ),
    ApiKey.DELETE_RECORDS: rows(
        m.DeleteRecordsRequest,
        m.DeleteRecordsResponse,
        ("topics", "topics"),
        needs(DELETE, TOPIC, "name"),
        lambda topic, code: _dr.DeleteRecordsTopicResult(
            topic.name, [_dr.DeleteRecordsPartitionResult(p.partition_index, -1, code) for p in topic.partitions]
        ),
    ),
    # topics
    ApiKey.CREATE_TOPICS: topics.guard_create_topics,  # CREATE cluster, or CREATE topic
    ApiKey.DELETE_TOPICS: topics.guard_delete_topics,  # DELETE cluster, or DELETE topic; by name DESCRIBE topic, too
    ApiKey.CREATE_PARTITIONS: rows(
        m.CreatePartitionsRequest,
        m.CreatePartitionsResponse,
        ("topics", "results"),
        needs(ALTER, TOPIC, "name"),
        answers.with_text(create_partitions.CreatePartitionsTopicResult, "name", "name"),
    ),
    ApiKey.DESCRIBE_CONFIGS: administration.configurations(
        Operation.DESCRIBE_CONFIGS,
        m.DescribeConfigsRequest,
        m.DescribeConfigsResponse,
        "results",
        describe_configs.DescribeConfigsResult,
    ),
    ApiKey.ALTER_CONFIGS: administration.configurations(
        Operation.ALTER_CONFIGS,
        m.AlterConfigsRequest,
        m.AlterConfigsResponse,
        "responses",
        alter_configs.AlterConfigsResourceResponse,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: administration.configurations(
        Operation.ALTER_CONFIGS,
        m.IncrementalAlterConfigsRequest,
        m.IncrementalAlterConfigsResponse,
        "responses",
        incremental_alter_configs.AlterConfigsResourceResponse,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _by_cluster(
        Operation.DESCRIBE_CONFIGS, m.ListConfigResourcesRequest, m.ListConfigResourcesResponse
    ),
    # groups
    ApiKey.JOIN_GROUP: whole(m.JoinGroupRequest, _READ_GROUP, refused=answers.join),
    ApiKey.SYNC_GROUP: whole(m.SyncGroupRequest, _READ_GROUP, refused=top(m.SyncGroupResponse, assignment=b"")),
    ApiKey.HEARTBEAT: _group_member(m.HeartbeatRequest, m.HeartbeatResponse),
    ApiKey.LEAVE_GROUP: _group_member(m.LeaveGroupRequest, m.LeaveGroupResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeat(m.ConsumerGroupHeartbeatRequest, m.ConsumerGroupHeartbeatResponse),
    ApiKey.SHARE_GROUP_HEARTBEAT: _heartbeat(m.ShareGroupHeartbeatRequest, m.ShareGroupHeartbeatResponse),
    ApiKey.STREAMS_GROUP_HEARTBEAT: whole(
        m.StreamsGroupHeartbeatRequest,
        _READ_GROUP,
        groups.may_have_topology,
        refused=top(m.StreamsGroupHeartbeatResponse),
    ),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _group_member(
        m.StreamsGroupTopologyDescriptionUpdateRequest, m.StreamsGroupTopologyDescriptionUpdateResponse
    ),
    ApiKey.LIST_GROUPS: groups.guard_list_groups,  # DESCRIBE cluster, or DESCRIBE group for each that is shown
    ApiKey.DESCRIBE_GROUPS: groups.describing(
        m.DescribeGroupsRequest, m.DescribeGroupsResponse, "groups", describe_groups.DescribedGroup
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.describing(
        m.ConsumerGroupDescribeRequest,
        m.ConsumerGroupDescribeResponse,
        "group_ids",
        consumer_group_describe.DescribedGroup,
        groups.topics_of_members,
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: groups.describing(
        m.ShareGroupDescribeRequest,
        m.ShareGroupDescribeResponse,
        "group_ids",
        share_group_describe.DescribedGroup,
        groups.topics_of_members,
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: groups.describing(
        m.StreamsGroupDescribeRequest,
        m.StreamsGroupDescribeResponse,
        "group_ids",
        streams_group_describe.DescribedGroup,
        groups.topics_of_streams,
    ),
    ApiKey.DELETE_GROUPS: rows(
        m.DeleteGroupsRequest,
        m.DeleteGroupsResponse,
        ("groups_names", "results"),
        needs(DELETE, GROUP, "group_id"),
        answers.with_text(delete_groups.DeletableGroupResult, "group_id"),
    ),
    ApiKey.OFFSET_COMMIT: rows(
        m.OffsetCommitRequest,
        m.OffsetCommitResponse,
        ("topics", "topics"),
        needs(READ, TOPIC, "name"),
        lambda topic, code: _oc.OffsetCommitResponseTopic(
            topic.name,
            topic.topic_id,
            [_oc.OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
        ),
        first=[_READ_GROUP],
    ),
    ApiKey.OFFSET_FETCH: groups.guard_offset_fetch,  # DESCRIBE group, DESCRIBE topic
    ApiKey.OFFSET_DELETE: rows(
        m.OffsetDeleteRequest,
        m.OffsetDeleteResponse,
        ("topics", "topics"),
        needs(READ, TOPIC, "name"),
        lambda topic, code: _od.OffsetDeleteResponseTopic(
            topic.name, [_od.OffsetDeleteResponsePartition(each.partition_index, code) for each in topic.partitions]
        ),
        first=[needs(DELETE, GROUP, "group_id")],
        all_refused=top(m.OffsetDeleteResponse),
    ),
    # share groups
    ApiKey.SHARE_FETCH: records.guard_share_fetch,  # READ group, READ topic
    ApiKey.SHARE_ACKNOWLEDGE: records.guard_share_acknowledge,  # READ group, READ topic
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: groups.guard_describe_share_group_offsets,  # DESCRIBE group, DESCRIBE topic
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: rows(
        m.AlterShareGroupOffsetsRequest,
        m.AlterShareGroupOffsetsResponse,
        ("topics", "responses"),
        needs(READ, TOPIC, "topic_name"),
        lambda topic, code: _as.AlterShareGroupOffsetsResponseTopic(
            topic.topic_name,
            partitions=[
                _as.AlterShareGroupOffsetsResponsePartition(each.partition_index, code, words_of(code))
                for each in topic.partitions
            ],
        ),
        first=[_READ_GROUP],
        all_refused=top(m.AlterShareGroupOffsetsResponse),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: rows(
        m.DeleteShareGroupOffsetsRequest,
        m.DeleteShareGroupOffsetsResponse,
        ("topics", "responses"),
        needs(READ, TOPIC, "topic_name"),
        answers.with_text(_ds.DeleteShareGroupOffsetsResponseTopic, "topic_name", "topic_name"),
        first=[needs(DELETE, GROUP, "group_id")],
        all_refused=top(m.DeleteShareGroupOffsetsResponse),
    ),
    # transactions
    ApiKey.INIT_PRODUCER_ID: whole(
        # WRITE and TWO_PHASE_COMMIT transactional id; without one IDEMPOTENT_WRITE cluster, or WRITE some topic
        m.InitProducerIdRequest,
        groups.may_begin,
        refused=top(m.InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: groups.guard_add_partitions,  # WRITE transactional id, WRITE topic
    ApiKey.ADD_OFFSETS_TO_TXN: whole(
        m.AddOffsetsToTxnRequest, _WRITE_TRANSACTION, _READ_GROUP, refused=top(m.AddOffsetsToTxnResponse)
    ),
    ApiKey.TXN_OFFSET_COMMIT: rows(
        m.TxnOffsetCommitRequest,
        m.TxnOffsetCommitResponse,
        ("topics", "topics"),
        needs(READ, TOPIC, "name"),
        lambda topic, code: _tc.TxnOffsetCommitResponseTopic(
            topic.name,
            topic.topic_id,
            [_tc.TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
        ),
        first=[_WRITE_TRANSACTION, _READ_GROUP],
    ),
    ApiKey.END_TXN: whole(m.EndTxnRequest, _WRITE_TRANSACTION, refused=top(m.EndTxnResponse)),
    ApiKey.WRITE_TXN_MARKERS: whole(
        m.WriteTxnMarkersRequest,
        cluster_or(ALTER, cluster(Operation.CLUSTER_ACTION)),
        refused=answers.markers,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: groups.guard_describe_transactions,  # DESCRIBE transactional id, DESCRIBE topic
    ApiKey.LIST_TRANSACTIONS: groups.guard_list_transactions,  # DESCRIBE transactional id
    # ACLs, users, quotas, tokens
    ApiKey.DESCRIBE_ACLS: administration.guard_describe_acls,  # DESCRIBE cluster
    ApiKey.CREATE_ACLS: administration.guard_create_acls,  # ALTER cluster
    ApiKey.DELETE_ACLS: administration.guard_delete_acls,  # ALTER cluster
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _by_cluster(
        Operation.DESCRIBE_CONFIGS, m.DescribeClientQuotasRequest, m.DescribeClientQuotasResponse, entries=None
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: whole(
        m.AlterClientQuotasRequest, cluster(Operation.ALTER_CONFIGS), refused=answers.quotas
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _by_cluster(
        DESCRIBE, m.DescribeUserScramCredentialsRequest, m.DescribeUserScramCredentialsResponse
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: whole(
        m.AlterUserScramCredentialsRequest, cluster(ALTER), refused=answers.users
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: whole(
        m.CreateDelegationTokenRequest,
        administration.may_create_token,  # CREATE_TOKENS user
        refused=top(m.CreateDelegationTokenResponse),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: whole(
        m.RenewDelegationTokenRequest,
        administration.may_change_token,
        refused=top(m.RenewDelegationTokenResponse),
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: whole(
        m.ExpireDelegationTokenRequest,
        administration.may_change_token,
        refused=top(m.ExpireDelegationTokenResponse),
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: administration.guard_describe_tokens,  # DESCRIBE token, DESCRIBE_TOKENS user
    # clusters
    ApiKey.ALTER_REPLICA_LOG_DIRS: whole(m.AlterReplicaLogDirsRequest, cluster(ALTER), refused=answers.log_dir_moves),
    ApiKey.DESCRIBE_LOG_DIRS: whole(m.DescribeLogDirsRequest, cluster(DESCRIBE), refused=answers.log_dirs),
    ApiKey.ELECT_LEADERS: whole(m.ElectLeadersRequest, cluster(ALTER), refused=answers.election),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: whole(
        m.AlterPartitionReassignmentsRequest, cluster(ALTER), refused=answers.reassignment
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _by_cluster(
        DESCRIBE, m.ListPartitionReassignmentsRequest, m.ListPartitionReassignmentsResponse
    ),
    ApiKey.DESCRIBE_QUORUM: _by_cluster(DESCRIBE, m.DescribeQuorumRequest, m.DescribeQuorumResponse),
    ApiKey.UPDATE_FEATURES: _by_cluster(ALTER, m.UpdateFeaturesRequest, m.UpdateFeaturesResponse),
    ApiKey.UNREGISTER_BROKER: _by_cluster(ALTER, m.UnregisterBrokerRequest, m.UnregisterBrokerResponse),
    ApiKey.UNREGISTER_CONTROLLER: _by_cluster(ALTER, m.UnregisterControllerRequest, m.UnregisterControllerResponse),
}
