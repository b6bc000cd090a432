"""The mesh as one cluster: its topics, nodes, versions and features, and the clients' own metrics."""

from services.gateway.requests.handler import Handler, Order, Reach
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.mesh import (
    api_versions,
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    metadata,
    sasl,
)
from services.gateway.requests.telemetry import requests as telemetry
from services.gateway.wire.apis import ApiKey

ROWS = (
    Handler(
        ApiKey.METADATA,
        VersionRange(0, 13),
        metadata.handle,
        split="owner of each topic; all topics: every cluster, one that is away as last seen",
        merge="topic, from its owner alone; nodes and leaders are virtual",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        VersionRange(0, 0),
        describe_topic_partitions.handle,
        split="owner of each topic; all topics: every cluster, one that is away as last seen",
        merge="topic, by name; pages are cut from the whole",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.API_VERSIONS,
        VersionRange(0, 5),
        api_versions.handle,
        split="answered by the gateway",
        merge="what all reachable clusters speak, cut down to this table",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.FIND_COORDINATOR,
        VersionRange(0, 6),
        find_coordinator.handle,
        split="answered by the gateway: it is every client's coordinator",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.SASL_HANDSHAKE,
        VersionRange(0, 1),
        sasl.handle_handshake,
        split="answered by the gateway, where clients log in",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.SASL_AUTHENTICATE,
        VersionRange(0, 2),
        sasl.handle_authenticate,
        split="answered by the gateway, where clients log in",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.DESCRIBE_CLUSTER,
        VersionRange(0, 2),
        describe_cluster.handle,
        split="answered by the gateway: its virtual nodes",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        VersionRange(0, 0),
        telemetry.handle_subscriptions,
        split="answered by the gateway: what clients shall tell of themselves",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.PUSH_TELEMETRY,
        VersionRange(0, 0),
        telemetry.handle_push,
        split="kept by the gateway, and shown at its /metrics",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
)
