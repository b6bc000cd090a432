"""Requests about clusters as a whole: rights, users, quotas, tokens, features, brokers."""

from services.gateway.requests.clusters import (
    acls,
    client_quotas,
    delegation_tokens,
    describe_quorum,
    scram_users,
    unregister,
    update_features,
)
from services.gateway.requests.handler import Handler, Reach
from services.gateway.requests.knowledge import VersionRange
from services.gateway.wire.apis import ApiKey

ROWS = (
    Handler(
        ApiKey.DESCRIBE_ACLS,
        VersionRange(0, 3),
        acls.handle_describe,
        split="one topic: its owner; everything else: every cluster; where ACLs of the mesh count, none",
        merge="right, each once; rights on one topic from its owner alone",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.CREATE_ACLS,
        VersionRange(0, 3),
        acls.handle_create,
        split="one topic: its owner; everything else, groups and transactional ids too: every cluster; if ACLs of "
        "the mesh count: control",
        merge="right; an error names the clusters that failed",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.DELETE_ACLS,
        VersionRange(0, 3),
        acls.handle_delete,
        split="as DescribeAcls, then each right that it shows where it lies; if ACLs of the mesh count: control",
        merge="right, each once; an error names the clusters that failed",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        VersionRange(0, 1),
        client_quotas.handle_describe,
        split="every cluster; if the mesh has quotas, none",
        merge="entity; where values differ the home cluster's, and a log line",
    ),
    Handler(
        ApiKey.ALTER_CLIENT_QUOTAS,
        VersionRange(0, 1),
        client_quotas.handle_alter,
        split="every cluster; if the mesh has quotas: control",
        merge="entity; an error names the clusters that failed",
    ),
    Handler(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        VersionRange(0, 0),
        scram_users.handle_describe,
        split="every cluster; if users are those of control (`USERS_FROM_CONTROL`), none",
        merge="user; where iterations differ the home cluster's, and a log line",
    ),
    Handler(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        VersionRange(0, 0),
        scram_users.handle_alter,
        split="every cluster; if users are those of control: control",
        merge="user; an error names the clusters that failed",
    ),
    Handler(
        ApiKey.CREATE_DELEGATION_TOKEN,
        VersionRange(0, 3),
        delegation_tokens.handle_create,
        split="the only cluster, for a named owner; with several clusters refused: a token is good for one",
        merge="",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.RENEW_DELEGATION_TOKEN,
        VersionRange(0, 2),
        delegation_tokens.handle_renew,
        split="every cluster",
        merge="the cluster that made the token",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        VersionRange(0, 2),
        delegation_tokens.handle_expire,
        split="every cluster",
        merge="the cluster that made the token",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        VersionRange(0, 3),
        delegation_tokens.handle_describe,
        split="every cluster",
        merge="token",
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.UPDATE_FEATURES,
        VersionRange(0, 2),
        update_features.handle,
        split="every cluster, when all have agreed",
        merge="an error names the clusters that failed",
    ),
    Handler(
        ApiKey.UNREGISTER_BROKER,
        VersionRange(0, 0),
        unregister.handle_broker,
        split="the cluster that the real broker's number tells",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.UNREGISTER_CONTROLLER,
        VersionRange(0, 0),
        unregister.handle_controller,
        split="the cluster that the controller's number tells",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_QUORUM,
        VersionRange(0, 2),
        describe_quorum.handle,
        split="the cluster of the node that is asked; refused if it names no node and there are several clusters",
        merge="real controllers and brokers by their numbers",
        reach=Reach.ONE_OWNER,
    ),
)
