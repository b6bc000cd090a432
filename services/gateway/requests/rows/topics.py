"""Topics, their settings and the places of their replicas."""

from services.gateway.requests.handler import Handler, Older, Reach
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.older import admin as older_admin
from services.gateway.requests.topics import (
    alter_configs,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    elect_leaders,
    list_config_resources,
    partition_reassignments,
)
from services.gateway.wire.apis import ApiKey

ROWS = (
    Handler(
        ApiKey.CREATE_TOPICS,
        VersionRange(2, 7),
        create_topics.handle,
        older=Older(VersionRange(0, 1), older_admin.handle_create_topics),
        split="owner of each topic",
        merge="topic; one that no rule matches is refused by name",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DELETE_TOPICS,
        VersionRange(1, 6),
        delete_topics.handle,
        older=Older(VersionRange(0, 0), older_admin.handle_delete_topics),
        split="owner of each topic",
        merge="topic",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.CREATE_PARTITIONS,
        VersionRange(0, 3),
        create_partitions.handle,
        split="owner of each topic",
        merge="topic; replicas by the numbers of real brokers",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_CONFIGS,
        VersionRange(1, 4),
        describe_configs.handle,
        older=Older(VersionRange(0, 0), older_admin.handle_describe_configs),
        split="topic: its owner; broker: its virtual node's cluster, or itself; group: its home; metrics: home cluster",
        merge="resource",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ALTER_CONFIGS,
        VersionRange(0, 2),
        alter_configs.handle,
        split="as DescribeConfigs; the defaults of all brokers only in a mesh of one cluster",
        merge="resource",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        VersionRange(0, 1),
        alter_configs.handle_incremental,
        split="as DescribeConfigs; the defaults of all brokers only in a mesh of one cluster",
        merge="resource",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.LIST_CONFIG_RESOURCES,
        VersionRange(0, 1),
        list_config_resources.handle,
        split="every cluster; brokers: answered by the gateway",
        merge="resource, each once; topics from their owner alone",
    ),
    Handler(
        ApiKey.DESCRIBE_LOG_DIRS,
        VersionRange(0, 5),
        describe_log_dirs.handle,
        split="every broker of every cluster, whichever virtual node is asked",
        merge="directory, named `cluster/broker:path`; topics on their owner alone",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        VersionRange(0, 2),
        alter_replica_log_dirs.handle,
        split="the broker that the directory's name `cluster/broker:path` tells",
        merge="partition",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.ELECT_LEADERS,
        VersionRange(0, 2),
        elect_leaders.handle,
        split="owner of each topic; all partitions: those that the mesh shows",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        VersionRange(0, 1),
        partition_reassignments.handle_alter,
        split="owner of each topic; replicas by the numbers of its real brokers",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        VersionRange(0, 0),
        partition_reassignments.handle_list,
        split="owner of each topic; all: every cluster",
        merge="topic, from its owner alone; real brokers by their numbers",
    ),
)
