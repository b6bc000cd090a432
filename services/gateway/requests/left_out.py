"""APIs that the gateway leaves out on purpose, each with the reason."""

from collections.abc import Mapping

from services.gateway.wire.apis import ApiKey

_WITH_ZOOKEEPER = "between brokers; gone with ZooKeeper"
_BETWEEN_BROKERS = "between the brokers of one cluster"
_WITH_CONTROLLERS = "between the brokers and controllers of one cluster"
_CHANGES_A_QUORUM = (
    "changes which controllers a cluster has, by ids that only its own files tell; clients send it to any node: ask "
    "the cluster itself"
)

LEFT_OUT: Mapping[int, str] = {
    ApiKey.LEADER_AND_ISR: _WITH_ZOOKEEPER,
    ApiKey.STOP_REPLICA: _WITH_ZOOKEEPER,
    ApiKey.UPDATE_METADATA: _WITH_ZOOKEEPER,
    ApiKey.CONTROLLED_SHUTDOWN: _WITH_ZOOKEEPER,
    ApiKey.VOTE: _WITH_CONTROLLERS,
    ApiKey.BEGIN_QUORUM_EPOCH: _WITH_CONTROLLERS,
    ApiKey.END_QUORUM_EPOCH: _WITH_CONTROLLERS,
    ApiKey.ALTER_PARTITION: _WITH_CONTROLLERS,
    ApiKey.ENVELOPE: _WITH_CONTROLLERS,
    ApiKey.FETCH_SNAPSHOT: _WITH_CONTROLLERS,
    ApiKey.BROKER_REGISTRATION: _WITH_CONTROLLERS,
    ApiKey.BROKER_HEARTBEAT: _WITH_CONTROLLERS,
    ApiKey.ALLOCATE_PRODUCER_IDS: _WITH_CONTROLLERS,
    ApiKey.CONTROLLER_REGISTRATION: _WITH_CONTROLLERS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _WITH_CONTROLLERS,
    ApiKey.ADD_RAFT_VOTER: _CHANGES_A_QUORUM,
    ApiKey.REMOVE_RAFT_VOTER: _CHANGES_A_QUORUM,
    ApiKey.UPDATE_RAFT_VOTER: _WITH_CONTROLLERS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _BETWEEN_BROKERS,
    ApiKey.READ_SHARE_GROUP_STATE: _BETWEEN_BROKERS,
    ApiKey.WRITE_SHARE_GROUP_STATE: _BETWEEN_BROKERS,
    ApiKey.DELETE_SHARE_GROUP_STATE: _BETWEEN_BROKERS,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _BETWEEN_BROKERS,
}
