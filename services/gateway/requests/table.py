"""The table of handlers: every API that this gateway serves is one row here and one module beside this one.

`python -m services.gateway.requests.table` writes the table into the gateway's README.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from services.gateway.requests import (
    acls,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    client_quotas,
    consumer_group_member,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    fetch,
    find_coordinator,
    group_member,
    init_producer_id,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    partition_reassignments,
    produce,
    scram_users,
    share_acknowledge,
    share_fetch,
    share_group_member,
    share_group_offsets,
    streams_group_member,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from services.gateway.requests.knowledge import ClusterKnowledge, VersionRange
from services.gateway.requests.left_out import LEFT_OUT
from services.gateway.requests.older import admin as older_admin
from services.gateway.requests.older import fetch as older_fetch
from services.gateway.requests.older import offsets as older_offsets
from services.gateway.requests.older import produce as older_produce
from services.gateway.requests.plan import Handler, Older, Order, Reach
from services.gateway.requests.telemetry import requests as telemetry
from services.gateway.requests.transactions import add_partitions, end, offsets
from services.gateway.wire.apis import ApiKey, api_name

_ROWS = (
    Handler(
        ApiKey.PRODUCE,
        VersionRange(3, 13),
        produce.handle,
        older=Older(VersionRange(0, 2), older_produce.handle),
        split="leader of each partition on its topic's owner; untouched when that is one",
        merge="partition, in the client's order",
        order=Order.PIPELINED,
        own=True,
    ),
    Handler(
        ApiKey.FETCH,
        VersionRange(4, 18),
        fetch.handle,
        older=Older(VersionRange(0, 3), older_fetch.handle),
        split="leader of each partition on its topic's owner, or a replica in the client's rack",
        merge="partition; by sessions on both sides; leaves when the minimum has come in or the wait is over",
        own=True,
    ),
    Handler(
        ApiKey.LIST_OFFSETS,
        VersionRange(1, 10),
        list_offsets.handle,
        older=Older(VersionRange(0, 0), older_offsets.handle_list_offsets),
        split="leader of each partition on its topic's owner",
        merge="partition",
    ),
    Handler(
        ApiKey.METADATA,
        VersionRange(0, 13),
        metadata.handle,
        split="owner of each topic; all topics: every reachable cluster",
        merge="topic, from its owner alone; nodes and leaders are virtual",
        own=True,
    ),
    Handler(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        VersionRange(0, 4),
        offset_for_leader_epoch.handle,
        split="answered by the gateway: clients see no leader epochs",
        merge="",
        order=Order.AT_ONCE,
        own=True,
    ),
    Handler(
        ApiKey.API_VERSIONS,
        VersionRange(0, 4),
        api_versions.handle,
        split="answered by the gateway",
        merge="what all reachable clusters speak, cut down to this table",
        order=Order.AT_ONCE,
        own=True,
    ),
    Handler(
        ApiKey.INIT_PRODUCER_ID,
        VersionRange(0, 5),
        init_producer_id.handle,
        split="answered by the gateway: it mints the id; transactional ids: coordinator on the id's home cluster",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        VersionRange(0, 3),
        add_partitions.handle,
        split="the transactional id's home cluster; other clusters if its rule spans them, else refused. "
        "4 and 5 are between brokers",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ADD_OFFSETS_TO_TXN,
        VersionRange(0, 4),
        offsets.handle_add,
        split="the transactional id's home cluster",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.END_TXN,
        VersionRange(0, 5),
        end.handle,
        split="the transactional id's home cluster; every cluster with a part of it if its rule spans them, home last",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.TXN_OFFSET_COMMIT,
        VersionRange(0, 5),
        offsets.handle_commit,
        split="the transactional id's home cluster, if group and topics live there too; else refused",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.OFFSET_COMMIT,
        VersionRange(2, 10),
        offset_commit.handle,
        older=Older(VersionRange(0, 1), older_offsets.handle_offset_commit),
        split="owner of each topic; the group's home first, or a heartbeat there; with shadow topics the home alone",
        merge="partition; what fences the member at home fails all",
        own=True,
    ),
    Handler(
        ApiKey.OFFSET_FETCH,
        VersionRange(1, 10),
        offset_fetch.handle,
        older=Older(VersionRange(0, 0), older_offsets.handle_offset_fetch),
        split="owner of each topic; all topics: every cluster; with shadow topics the group's home alone",
        merge="partition; a cluster that does not answer fails the group, to be retried",
        own=True,
    ),
    Handler(
        ApiKey.FIND_COORDINATOR,
        VersionRange(0, 6),
        find_coordinator.handle,
        split="answered by the gateway: it is every client's coordinator",
        merge="",
        order=Order.AT_ONCE,
        own=True,
    ),
    Handler(
        ApiKey.JOIN_GROUP,
        VersionRange(0, 9),
        group_member.handle_join_group,
        split="the group's home cluster, byte for byte",
        merge="",
    ),
    Handler(
        ApiKey.HEARTBEAT,
        VersionRange(0, 4),
        group_member.handle_heartbeat,
        split="the group's home cluster, byte for byte",
        merge="",
    ),
    Handler(
        ApiKey.LEAVE_GROUP,
        VersionRange(0, 5),
        group_member.handle_leave_group,
        split="the group's home cluster, byte for byte",
        merge="",
    ),
    Handler(
        ApiKey.SYNC_GROUP,
        VersionRange(0, 5),
        group_member.handle_sync_group,
        split="the group's home cluster, byte for byte",
        merge="",
    ),
    Handler(
        ApiKey.DESCRIBE_GROUPS,
        VersionRange(0, 6),
        describe_groups.handle,
        split="every cluster",
        merge="group: the cluster where it lives",
    ),
    Handler(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        VersionRange(0, 1),
        consumer_group_member.handle,
        split="the group's home cluster; refused if that lacks a topic and no rule allows shadow topics",
        merge="topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        VersionRange(0, 1),
        describe_groups.handle_consumer_groups,
        split="every cluster",
        merge="group: the cluster where it lives; topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        VersionRange(1, 1),
        share_group_member.handle,
        split="the group's home cluster; refused if a topic lives elsewhere",
        merge="topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.SHARE_FETCH,
        VersionRange(1, 2),
        share_fetch.handle,
        split="leader of each partition on the share group's home, by a session with each",
        merge="partition; topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.SHARE_ACKNOWLEDGE,
        VersionRange(1, 2),
        share_acknowledge.handle,
        split="the leader that gave the records",
        merge="partition; topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        VersionRange(0, 1),
        share_group_offsets.handle_describe,
        split="each group's home cluster",
        merge="group; topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        VersionRange(0, 0),
        share_group_offsets.handle_alter,
        split="the group's home cluster",
        merge="topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        VersionRange(0, 0),
        share_group_offsets.handle_delete,
        split="the group's home cluster",
        merge="topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        VersionRange(0, 0),
        streams_group_member.handle,
        split="the group's home cluster; refused if a topic, internal ones included, lives elsewhere",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.SHARE_GROUP_DESCRIBE,
        VersionRange(1, 1),
        describe_groups.handle_share_groups,
        split="every cluster",
        merge="group: the cluster where it lives; topic ids are the mesh's",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        VersionRange(0, 0),
        describe_groups.handle_streams_groups,
        split="every cluster",
        merge="group: the cluster where it lives",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.LIST_GROUPS,
        VersionRange(0, 5),
        list_groups.handle,
        split="every broker of every cluster",
        merge="group: each once, real ones before copies that only hold offsets",
    ),
    Handler(
        ApiKey.DELETE_GROUPS,
        VersionRange(0, 2),
        delete_groups.handle,
        split="every cluster: the group's home first, copies that only hold offsets when it has agreed",
        merge="group: NON_EMPTY_GROUP wins; not found only if nobody knew it",
    ),
    Handler(
        ApiKey.OFFSET_DELETE,
        VersionRange(0, 0),
        offset_delete.handle,
        split="owner of each topic; what members at the group's home subscribe to is kept",
        merge="partition",
    ),
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
        ApiKey.DELETE_RECORDS,
        VersionRange(0, 2),
        delete_records.handle,
        split="leader of each partition on its topic's owner",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_LOG_DIRS,
        VersionRange(0, 5),
        describe_log_dirs.handle,
        split="every broker of every cluster, whichever virtual node is asked",
        merge="directory, named `cluster/broker:path`; topics on their owner alone",
        own=True,
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
        ApiKey.DESCRIBE_PRODUCERS,
        VersionRange(0, 0),
        describe_producers.handle,
        split="leader of each partition on its topic's owner",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_TRANSACTIONS,
        VersionRange(0, 0),
        describe_transactions.handle,
        split="every cluster that has transactions",
        merge="transactional id: its home's word, with the partitions of all",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.LIST_TRANSACTIONS,
        VersionRange(0, 2),
        list_transactions.handle,
        split="every broker of every cluster",
        merge="transactional id and producer id",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.WRITE_TXN_MARKERS,
        VersionRange(0, 2),
        write_txn_markers.handle,
        split="leader of each partition on its topic's owner; for administrators who abort what hangs",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_ACLS,
        VersionRange(0, 3),
        acls.handle_describe,
        split="one topic: its owner; everything else: every cluster",
        merge="right, each once; rights on one topic from its owner alone",
        own=True,
    ),
    Handler(
        ApiKey.CREATE_ACLS,
        VersionRange(0, 3),
        acls.handle_create,
        split="one topic: its owner; everything else, groups and transactional ids too: every cluster",
        merge="right; an error names the clusters that failed",
        own=True,
    ),
    Handler(
        ApiKey.DELETE_ACLS,
        VersionRange(0, 3),
        acls.handle_delete,
        split="as DescribeAcls, then each right that it shows where it lies",
        merge="right, each once; an error names the clusters that failed",
        own=True,
    ),
    Handler(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        VersionRange(0, 1),
        client_quotas.handle_describe,
        split="every cluster",
        merge="entity; where values differ the home cluster's, and a log line",
    ),
    Handler(
        ApiKey.ALTER_CLIENT_QUOTAS,
        VersionRange(0, 1),
        client_quotas.handle_alter,
        split="every cluster",
        merge="entity; an error names the clusters that failed",
    ),
    Handler(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        VersionRange(0, 0),
        scram_users.handle_describe,
        split="every cluster",
        merge="user; where iterations differ the home cluster's, and a log line",
    ),
    Handler(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        VersionRange(0, 0),
        scram_users.handle_alter,
        split="every cluster",
        merge="user; an error names the clusters that failed",
    ),
    Handler(
        ApiKey.CREATE_DELEGATION_TOKEN,
        VersionRange(0, 3),
        delegation_tokens.handle_create,
        split="the only cluster, for a named owner; with several clusters refused: a token is good for one",
        merge="",
        own=True,
    ),
    Handler(
        ApiKey.RENEW_DELEGATION_TOKEN,
        VersionRange(0, 2),
        delegation_tokens.handle_renew,
        split="every cluster",
        merge="the cluster that made the token",
        own=True,
    ),
    Handler(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        VersionRange(0, 2),
        delegation_tokens.handle_expire,
        split="every cluster",
        merge="the cluster that made the token",
        own=True,
    ),
    Handler(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        VersionRange(0, 3),
        delegation_tokens.handle_describe,
        split="every cluster",
        merge="token",
        own=True,
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
    Handler(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        VersionRange(0, 2),
        alter_replica_log_dirs.handle,
        split="the broker that the directory's name `cluster/broker:path` tells",
        merge="partition",
        own=True,
    ),
    Handler(
        ApiKey.UPDATE_FEATURES,
        VersionRange(0, 2),
        update_features.handle,
        split="every cluster, when all have agreed",
        merge="an error names the clusters that failed",
    ),
    Handler(
        ApiKey.LIST_CONFIG_RESOURCES,
        VersionRange(0, 1),
        list_config_resources.handle,
        split="every cluster; brokers: answered by the gateway",
        merge="resource, each once; topics from their owner alone",
    ),
    Handler(
        ApiKey.UNREGISTER_BROKER,
        VersionRange(0, 0),
        unregister_broker.handle,
        split="the cluster that the real broker's number tells",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        VersionRange(0, 0),
        describe_topic_partitions.handle,
        split="owner of each topic; all topics: every reachable cluster",
        merge="topic, by name; pages are cut from the whole",
        own=True,
    ),
    Handler(
        ApiKey.DESCRIBE_CLUSTER,
        VersionRange(0, 2),
        describe_cluster.handle,
        split="answered by the gateway: its virtual nodes",
        merge="",
        order=Order.AT_ONCE,
        own=True,
    ),
    Handler(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        VersionRange(0, 0),
        telemetry.handle_subscriptions,
        split="answered by the gateway: what clients shall tell of themselves",
        merge="",
        order=Order.AT_ONCE,
        own=True,
    ),
    Handler(
        ApiKey.PUSH_TELEMETRY,
        VersionRange(0, 0),
        telemetry.handle_push,
        split="kept by the gateway, and shown at its /metrics",
        merge="",
        order=Order.AT_ONCE,
        own=True,
    ),
)

HANDLERS: Mapping[int, Handler] = {row.api_key: row for row in _ROWS}


def served_ranges(clusters: Iterable[ClusterKnowledge]) -> dict[int, VersionRange]:
    """API key -> versions to offer, as each row's reach tells. A cluster that has never been reached cuts nothing."""
    known = [cluster.versions for cluster in clusters if cluster.versions]
    served: dict[int, VersionRange] = {}
    for handler in HANDLERS.values():
        offered = _offered(handler, [versions.get(handler.api_key) for versions in known])
        if offered is not None:
            served[handler.api_key] = handler.widened(offered)
    return served


def _offered(handler: Handler, spoken: Sequence[VersionRange | None]) -> VersionRange | None:
    """`spoken`: by each known cluster, None by one that lacks the API."""
    ranges = [each for each in spoken if each is not None]
    if not spoken or handler.offered is Reach.OWN:
        return handler.versions
    if not ranges or (handler.offered is Reach.ALL_CLUSTERS and len(ranges) < len(spoken)):
        return None
    if handler.offered is Reach.ONE_OWNER:
        hull = VersionRange(min(low for low, _ in ranges), max(high for _, high in ranges))
        return handler.versions.intersection(hull)
    common: VersionRange | None = handler.versions
    for each in ranges:
        common = common.intersection(each) if common else None
    return common


def markdown() -> str:
    """The table for the README."""
    head = ["key", "API", "versions", "offered", "goes to", "answers become one by"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [
        f"| {key} | {api_name(key)} | {_versions(row)} | {row.offered.value} | {row.split} | {row.merge or '-'} |"
        for key, row in sorted(HANDLERS.items())
    ]
    return "\n".join(lines)


def _versions(row: Handler) -> str:
    if row.older is None:
        return str(row.versions)
    low, high = row.older.versions
    return f"{row.widened(row.versions)} ({low if low == high else row.older.versions} translated)"


def left_out() -> str:
    """What is not served on purpose, for the README."""
    apis: dict[str, list[str]] = {}
    for key, reason in sorted(LEFT_OUT.items()):
        apis.setdefault(reason, []).append(f"{api_name(key)} ({key})")
    return "\n".join(f"- {', '.join(names)}: {reason}." for reason, names in apis.items())


README = Path(__file__).parent.parent / "README.md"


def with_table(text: str) -> str:
    """The README's text with what is between its markers brought up to date."""
    for name, content in (("api table", markdown()), ("left out", left_out())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
    sys.stdout.write(f"{README} is up to date\n")
