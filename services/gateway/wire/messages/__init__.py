"""Kafka's messages, one module for each API. Parts of a message are imported from its module."""

from services.gateway.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from services.gateway.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from services.gateway.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from services.gateway.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from services.gateway.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from services.gateway.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from services.gateway.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from services.gateway.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from services.gateway.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from services.gateway.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from services.gateway.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from services.gateway.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from services.gateway.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from services.gateway.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from services.gateway.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from services.gateway.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from services.gateway.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from services.gateway.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from services.gateway.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from services.gateway.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from services.gateway.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from services.gateway.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from services.gateway.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from services.gateway.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from services.gateway.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from services.gateway.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from services.gateway.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from services.gateway.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from services.gateway.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from services.gateway.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from services.gateway.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from services.gateway.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from services.gateway.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from services.gateway.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from services.gateway.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from services.gateway.wire.messages.fetch import FetchRequest, FetchResponse
from services.gateway.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from services.gateway.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from services.gateway.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from services.gateway.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from services.gateway.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from services.gateway.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from services.gateway.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from services.gateway.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from services.gateway.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from services.gateway.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from services.gateway.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataResponse
from services.gateway.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from services.gateway.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from services.gateway.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from services.gateway.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from services.gateway.wire.messages.produce import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from services.gateway.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from services.gateway.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from services.gateway.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from services.gateway.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from services.gateway.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from services.gateway.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from services.gateway.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from services.gateway.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from services.gateway.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from services.gateway.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from services.gateway.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from services.gateway.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from services.gateway.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from services.gateway.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from services.gateway.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from services.gateway.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsResponse",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreateDelegationTokenRequest",
    "CreateDelegationTokenResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "ExpireDelegationTokenRequest",
    "ExpireDelegationTokenResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
    "RenewDelegationTokenRequest",
    "RenewDelegationTokenResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
    "StreamsGroupHeartbeatRequest",
    "StreamsGroupHeartbeatResponse",
    "StreamsGroupTopologyDescriptionUpdateRequest",
    "StreamsGroupTopologyDescriptionUpdateResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
    "UnregisterControllerRequest",
    "UnregisterControllerResponse",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]
