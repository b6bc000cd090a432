"""How each API is treated for a tenant's clients. An API without a treatment is not served to them.

The rights of a tenant are bounded, too (`authorization.bounds`), whatever a request names: so an id of another tenant's
topic leads to nothing, and a list shows nothing that is not the tenant's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from services.gateway.wire.apis import ApiKey


class Treatment(Enum):
    """See above."""

    NO_NAMES = "its messages hold no names of topics, groups or transactional ids"
    NAMES = "fields that the specifications mark hold all its names"
    OTHER_FIELDS = "other fields hold names, too: keys, expressions, or bytes of consumers"
    CLUSTER = "refused: it needs a right on the cluster, which no tenant has"


_NO_NAMES, _NAMES, _OTHER, _CLUSTER = Treatment

TREATMENTS: Final[Mapping[int, Treatment]] = {
    # what a client says before, or of itself
    ApiKey.API_VERSIONS: _NO_NAMES,
    ApiKey.SASL_HANDSHAKE: _NO_NAMES,
    ApiKey.SASL_AUTHENTICATE: _NO_NAMES,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _NO_NAMES,
    ApiKey.PUSH_TELEMETRY: _NO_NAMES,
    # the mesh
    ApiKey.METADATA: _NAMES,
    ApiKey.DESCRIBE_CLUSTER: _NO_NAMES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _NAMES,
    ApiKey.FIND_COORDINATOR: _OTHER,
    # records
    ApiKey.PRODUCE: _NAMES,
    ApiKey.FETCH: _NAMES,
    ApiKey.LIST_OFFSETS: _NAMES,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _NAMES,
    ApiKey.DESCRIBE_PRODUCERS: _NAMES,
    ApiKey.DELETE_RECORDS: _NAMES,
    # topics
    ApiKey.CREATE_TOPICS: _OTHER,
    ApiKey.DELETE_TOPICS: _NAMES,
    ApiKey.CREATE_PARTITIONS: _NAMES,
    ApiKey.DESCRIBE_CONFIGS: _NAMES,
    ApiKey.ALTER_CONFIGS: _NAMES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _NAMES,
    ApiKey.LIST_CONFIG_RESOURCES: _CLUSTER,
    # groups
    ApiKey.JOIN_GROUP: _OTHER,
    ApiKey.SYNC_GROUP: _OTHER,
    ApiKey.HEARTBEAT: _NAMES,
    ApiKey.LEAVE_GROUP: _NAMES,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _OTHER,
    ApiKey.SHARE_GROUP_HEARTBEAT: _NAMES,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _OTHER,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _NAMES,
    ApiKey.LIST_GROUPS: _NAMES,
    ApiKey.DESCRIBE_GROUPS: _OTHER,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _OTHER,
    ApiKey.SHARE_GROUP_DESCRIBE: _NAMES,
    ApiKey.STREAMS_GROUP_DESCRIBE: _NAMES,
    ApiKey.DELETE_GROUPS: _NAMES,
    ApiKey.OFFSET_COMMIT: _NAMES,
    ApiKey.OFFSET_FETCH: _NAMES,
    ApiKey.OFFSET_DELETE: _NAMES,
    ApiKey.SHARE_FETCH: _NAMES,
    ApiKey.SHARE_ACKNOWLEDGE: _NAMES,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _NAMES,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _NAMES,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _NAMES,
    # transactions
    ApiKey.INIT_PRODUCER_ID: _NAMES,
    ApiKey.ADD_PARTITIONS_TO_TXN: _NAMES,
    ApiKey.ADD_OFFSETS_TO_TXN: _NAMES,
    ApiKey.END_TXN: _NAMES,
    ApiKey.TXN_OFFSET_COMMIT: _NAMES,
    ApiKey.DESCRIBE_TRANSACTIONS: _NAMES,
    ApiKey.LIST_TRANSACTIONS: _OTHER,
    ApiKey.WRITE_TXN_MARKERS: _CLUSTER,
    # ACLs, users, quotas: operators decide about them for all tenants
    ApiKey.DESCRIBE_ACLS: _CLUSTER,
    ApiKey.CREATE_ACLS: _CLUSTER,
    ApiKey.DELETE_ACLS: _CLUSTER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _CLUSTER,
    ApiKey.ALTER_CLIENT_QUOTAS: _CLUSTER,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _CLUSTER,
    # tokens: a client sees those of its own user
    ApiKey.CREATE_DELEGATION_TOKEN: _NO_NAMES,
    ApiKey.RENEW_DELEGATION_TOKEN: _CLUSTER,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _NO_NAMES,
    # clusters
    ApiKey.ALTER_REPLICA_LOG_DIRS: _CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _CLUSTER,
    ApiKey.ELECT_LEADERS: _CLUSTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CLUSTER,
    ApiKey.DESCRIBE_QUORUM: _CLUSTER,
    ApiKey.UPDATE_FEATURES: _CLUSTER,
    ApiKey.UNREGISTER_BROKER: _CLUSTER,
    ApiKey.UNREGISTER_CONTROLLER: _CLUSTER,
}
