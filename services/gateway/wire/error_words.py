"""Kafka's own words for error codes: they open every sentence that this side answers with, for people search for them.

A broker that has nothing more to say sends no sentence, and clients show these words of their own.
"""

from collections.abc import Mapping
from typing import Final

from services.gateway.wire.errors import ErrorCode, error_name

KAFKAS_WORDS: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available for the requested topic-partition",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Invalid topic",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "Replica assignment is invalid",
    ErrorCode.INVALID_CONFIG: "Configuration is invalid",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster",
    ErrorCode.INVALID_REQUEST: "Invalid request",
    ErrorCode.SECURITY_DISABLED: "Security features are disabled",
    ErrorCode.LOG_DIR_NOT_FOUND: "The user-specified log directory is not found in the broker config",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation Token requests are not allowed",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist",
    ErrorCode.RESOURCE_NOT_FOUND: "A request illegally referred to a resource that does not exist",
    ErrorCode.DUPLICATE_RESOURCE: "A request illegally referred to the same resource twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "Requested credential would not meet criteria for acceptability",
    ErrorCode.INVALID_UPDATE_VERSION: "The given update version was invalid",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "The given broker ID was not registered",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was sent to an endpoint of the wrong type",
    ErrorCode.INVALID_RECORD_STATE: "The record state is invalid",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The share session was not found",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session epoch is invalid",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The supplied topology is invalid",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The limit of share sessions has been reached",
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: "The given controller ID was not registered",
}
"""As `org.apache.kafka.common.protocol.Errors` has them, without what would be wrong here. That of INVALID_REQUEST
blames the client library; "Invalid topic" is what librdkafka and Java's producer say of that code."""


def words_of(code: int) -> str:
    """Kafka's words for the code; its name where none are known."""
    return KAFKAS_WORDS.get(code) or error_name(code)


def worded(code: int, sentence: str) -> str:
    """Our sentence behind Kafka's words for the code."""
    return f"{words_of(code)}: {sentence}"
