"""What the gateway changes on purpose, API by API. What is not written here passes byte for byte, both ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.gateway.requests.nodes import NODE_OF_AN_EMPTY_MESH
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeGroupsResponse,
)
from services.gateway.wire.messages.delete_acls import DeleteAclsFilterResult
from services.gateway.wire.schema import NO_UUID, Struct
from tests.unit.gateway.roundtrip.samples import FAILURE, MESH_ID
from tests.unit.gateway.roundtrip.stage import UNASKED_OPERATIONS, told_of

ANYTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A field that is not the same on the other side."""

    path: str
    because: str
    becomes: Any = ANYTHING


UNHURRIED: Final = Change(
    "throttle_time_ms", "brokers hold back the connections of who asks too much: here the gateway's", 0
)


@dataclass(frozen=True, slots=True)
class Way:
    """How requests of an API go to their owner, and answers come back."""

    question: Sequence[Change] = ()
    answer: Sequence[Change] = ()
    question_anew: str = ""
    """Parts of the request that the gateway writes itself: unknown tags of theirs are lost. `.` is the whole."""
    answer_anew: str = ""
    everywhere: bool = False
    """What c1 has, c2 has as well."""
    alone: bool = False
    """Only served in a mesh of one cluster."""
    own: bool = False
    """Answered by the gateway."""
    instead: int | None = None
    """The API by which brokers are asked."""
    refused_until: int = -1
    """The last version in which the request can't say what the gateway needs to know, so that it refuses."""
    refusal_is_logged: bool = False
    """And not told to the client, who would not show what he asked for besides."""
    tried_first: bool = False
    """Clusters are asked twice: whether they would, and then to do it."""
    consistent: Callable[[Any, Any], Struct] = told_of
    """A broker's answer from its question and the sample of an answer."""

    def changes_of_question(self) -> dict[str, Change]:
        return _by_path(self.question, self.question_anew)

    def changes_of_answer(self) -> dict[str, Change]:
        return _by_path(self.answer, self.answer_anew)

    def paths(self) -> set[str]:
        questions = {f"question.{path}" for path in self.changes_of_question()}
        return questions | {f"answer.{path}" for path in self.changes_of_answer()}


def _by_path(changes: Sequence[Change], anew: str) -> dict[str, Change]:
    tags = [f"{part}.unknown_tags".removeprefix("..") for part in anew.split()]
    written = {path: Change(path, "the gateway writes this part itself") for path in tags}
    return {change.path: change for change in changes} | written


LEADER_EPOCHS = "clients see no leader epochs: those of another cluster would be lower after a move"
VIRTUAL = "clients see virtual nodes"
HINT = "it would lead past the gateway"
KNOWN_THEN = "codes that a version 0 lacks are -1 there"
NAMED = "it names the clusters that failed"
ONE_FOR_ALL = "one feature that can't be changed keeps all from being changed"
REFUSED = "a coordinator that refuses to tell counts as one that does not answer"
NO_REPLICA = "clients are no replicas"
SHARE_HINTS = (
    Change("responses.partitions.current_leader.leader_id", HINT, -1),
    Change("responses.partitions.current_leader.leader_epoch", HINT, -1),
    Change("node_endpoints", HINT, []),
)


def _groups_told_of(asked: Struct, answer: Struct) -> Struct:
    """As real ones write what they were not asked for."""
    if isinstance(answer, DescribeGroupsResponse) and not getattr(asked, "include_authorized_operations", True):
        for group in answer.groups:
            group.authorized_operations = UNASKED_OPERATIONS
    return told_of(asked, answer)


def _groups_are_there(asked: Struct, answer: Struct) -> Struct:
    """Whatever becomes of their deletion."""
    if isinstance(answer, DescribeGroupsResponse):
        for group in answer.groups:
            group.error_code = ErrorCode.NONE
    return _groups_told_of(asked, answer)


def _rights_deleted(asked: Struct, answer: Struct) -> Struct:
    """Each filter finds one right: those that were shown are named one by one."""
    if isinstance(asked, DescribeAclsRequest) and isinstance(answer, DescribeAclsResponse):
        answer.resources = [each for each in answer.resources if each.resource_name == asked.resource_name_filter]
    if isinstance(asked, DeleteAclsRequest) and isinstance(answer, DeleteAclsResponse):
        rights = [acl for result in answer.filter_results for acl in result.matching_acls]
        answer.filter_results = [DeleteAclsFilterResult(matching_acls=[each]) for each in rights]
    return answer


WAYS: Final[Mapping[int, Way]] = {
    ApiKey.PRODUCE: Way(
        answer=(
            Change("responses.partition_responses.current_leader.leader_id", HINT, -1),
            Change("responses.partition_responses.current_leader.leader_epoch", HINT, -1),
            Change("node_endpoints", HINT, []),
            Change("responses.partition_responses.error_code", KNOWN_THEN, -1),
        ),
        answer_anew=". responses",
    ),
    ApiKey.FETCH: Way(
        question=(
            Change("replica_id", NO_REPLICA, -1),
            Change("topics.partitions.log_start_offset", NO_REPLICA, -1),
            Change("topics.partitions.current_leader_epoch", LEADER_EPOCHS, -1),
            Change("topics.partitions.last_fetched_epoch", LEADER_EPOCHS, -1),
            Change("cluster_id", "it is the mesh's", None),
        ),
        answer=(
            Change("responses.partitions.preferred_read_replica", "the gateway itself reads there", -1),
            Change("responses.partitions.error_code", KNOWN_THEN, -1),
            Change("responses.partitions.diverging_epoch.epoch", LEADER_EPOCHS, -1),
            Change("responses.partitions.diverging_epoch.end_offset", LEADER_EPOCHS, -1),
            Change("responses.partitions.current_leader.leader_id", HINT, -1),
            Change("responses.partitions.current_leader.leader_epoch", HINT, -1),
            Change("responses.partitions.snapshot_id.end_offset", NO_REPLICA, -1),
            Change("responses.partitions.snapshot_id.epoch", NO_REPLICA, -1),
        ),
        question_anew=". topics topics.partitions",
        answer_anew=". responses responses.partitions responses.partitions.diverging_epoch "
        "responses.partitions.current_leader responses.partitions.snapshot_id",
    ),
    ApiKey.LIST_OFFSETS: Way(
        question=(
            Change("replica_id", NO_REPLICA, -1),
            Change("topics.partitions.current_leader_epoch", LEADER_EPOCHS, -1),
        ),
        answer=(UNHURRIED, Change("topics.partitions.leader_epoch", LEADER_EPOCHS, -1)),
        question_anew=". topics",
        answer_anew=". topics",
    ),
    ApiKey.METADATA: Way(
        question=(
            Change("allow_auto_topic_creation", "asking creates nothing; what is missing is created after", False),
        ),
        answer=(
            UNHURRIED,
            Change("brokers", VIRTUAL),
            Change("controller_id", VIRTUAL, NODE_OF_AN_EMPTY_MESH),
            Change("cluster_id", "it is the mesh's", MESH_ID),
            Change("topics.partitions.leader_id", VIRTUAL, NODE_OF_AN_EMPTY_MESH),
            Change("topics.partitions.leader_epoch", LEADER_EPOCHS, -1),
            Change("topics.partitions.replica_nodes", VIRTUAL, [NODE_OF_AN_EMPTY_MESH]),
            Change("topics.partitions.isr_nodes", VIRTUAL, [NODE_OF_AN_EMPTY_MESH]),
            Change("topics.partitions.offline_replicas", VIRTUAL, []),
        ),
        question_anew=". topics",
        answer_anew=". topics topics.partitions",
    ),
    ApiKey.OFFSET_COMMIT: Way(answer=(UNHURRIED,), answer_anew=". topics topics.partitions"),
    ApiKey.OFFSET_FETCH: Way(
        answer=(UNHURRIED, Change("groups.topics", "a group with an error has nothing else to say", [])),
        question_anew=". topics groups",
        answer_anew=". topics topics.partitions groups",
    ),
    ApiKey.FIND_COORDINATOR: Way(own=True),
    ApiKey.DESCRIBE_GROUPS: Way(consistent=_groups_told_of, answer=(UNHURRIED,)),
    ApiKey.LIST_GROUPS: Way(
        question=(
            Change("states_filter", "a copy in another state must not be taken for the group", []),
            Change("types_filter", "a copy of another type must not be taken for the group", []),
        ),
        answer=(UNHURRIED,),
        question_anew=".",
        answer_anew=".",
    ),
    ApiKey.SASL_HANDSHAKE: Way(refused_until=1),
    ApiKey.API_VERSIONS: Way(own=True),
    ApiKey.CREATE_TOPICS: Way(
        answer=(UNHURRIED, Change("topics.topic_id", "a topic that was not created has none", NO_UUID)),
        question_anew=".",
        answer_anew=".",
    ),
    ApiKey.DELETE_TOPICS: Way(answer=(UNHURRIED,), question_anew=". topics", answer_anew=". responses"),
    ApiKey.DELETE_RECORDS: Way(answer=(UNHURRIED,), question_anew=". topics", answer_anew=". topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Way(own=True),
    ApiKey.ADD_PARTITIONS_TO_TXN: Way(answer=(UNHURRIED,), answer_anew="."),
    ApiKey.ADD_OFFSETS_TO_TXN: Way(answer=(UNHURRIED,), answer_anew="."),
    ApiKey.TXN_OFFSET_COMMIT: Way(answer=(UNHURRIED,), answer_anew=". topics topics.partitions"),
    ApiKey.WRITE_TXN_MARKERS: Way(question_anew=". markers.topics", answer_anew="markers markers.topics ."),
    ApiKey.DESCRIBE_ACLS: Way(answer=(UNHURRIED,), answer_anew=". resources resources.acls"),
    ApiKey.CREATE_ACLS: Way(
        answer=(UNHURRIED, Change("results.error_message", NAMED)),
        question_anew=".",
        answer_anew=". results",
    ),
    ApiKey.DELETE_ACLS: Way(
        consistent=_rights_deleted,
        question=(Change("filters", "what a filter shows is deleted right by right"),),
        answer=(
            UNHURRIED,
            Change("filter_results.matching_acls.resource_name", "a filter on one topic shows rights on that one"),
            Change("filter_results.error_code", "what fails is the deletion of rights, not the filter", ErrorCode.NONE),
            Change("filter_results.error_message", "what fails is the deletion of rights, not the filter", None),
        ),
        question_anew=".",
        answer_anew=". filter_results filter_results.matching_acls",
    ),
    ApiKey.DESCRIBE_CONFIGS: Way(answer=(UNHURRIED,), answer_anew="."),
    ApiKey.ALTER_CONFIGS: Way(answer=(UNHURRIED,), question_anew=".", answer_anew=". responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Way(answer=(UNHURRIED,), question_anew=".", answer_anew=". responses"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Way(
        question=(Change("dirs.path", "directories are called `cluster/broker:path`"),),
        answer=(UNHURRIED,),
        question_anew=". dirs",
        answer_anew=". results results.partitions",
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Way(
        answer=(UNHURRIED, Change("results.log_dir", "directories are called `cluster/broker:path`")),
        question_anew=".",
        answer_anew=".",
    ),
    ApiKey.CREATE_PARTITIONS: Way(answer=(UNHURRIED,), question_anew=".", answer_anew="."),
    ApiKey.DESCRIBE_QUORUM: Way(alone=True),
    ApiKey.CREATE_DELEGATION_TOKEN: Way(alone=True, refused_until=2),
    ApiKey.RENEW_DELEGATION_TOKEN: Way(everywhere=True),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Way(everywhere=True),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Way(answer=(UNHURRIED,), answer_anew="."),
    ApiKey.DELETE_GROUPS: Way(
        consistent=_groups_are_there, answer=(UNHURRIED,), question_anew=".", answer_anew=". results"
    ),
    ApiKey.ELECT_LEADERS: Way(
        answer=(UNHURRIED,),
        question_anew=".",
        answer_anew=". replica_election_results replica_election_results.partition_result",
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Way(
        answer=(UNHURRIED,), question_anew="topics", answer_anew=". responses responses.partitions"
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Way(
        refusal_is_logged=True, answer=(UNHURRIED,), answer_anew=". topics topics.partitions"
    ),
    ApiKey.OFFSET_DELETE: Way(answer=(UNHURRIED,)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Way(
        everywhere=True, answer=(UNHURRIED,), answer_anew=". entries entries.entity entries.values"
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Way(
        everywhere=True,
        answer=(UNHURRIED, Change("entries.error_message", NAMED)),
        answer_anew=". entries",
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Way(
        everywhere=True,
        answer=(UNHURRIED, Change("results.error_message", NAMED)),
        answer_anew=". results results.credential_infos",
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Way(
        everywhere=True,
        answer=(UNHURRIED, Change("results.error_message", NAMED)),
        answer_anew=". results",
    ),
    ApiKey.UPDATE_FEATURES: Way(
        everywhere=True,
        tried_first=True,
        answer=(
            UNHURRIED,
            Change("error_code", ONE_FOR_ALL, FAILURE),
            Change("error_message", ONE_FOR_ALL),
            Change("results.error_code", ONE_FOR_ALL, FAILURE),
            Change("results.error_message", ONE_FOR_ALL),
        ),
        answer_anew=". results",
    ),
    ApiKey.SASL_AUTHENTICATE: Way(refused_until=2),
    ApiKey.DESCRIBE_CLUSTER: Way(own=True),
    ApiKey.DESCRIBE_PRODUCERS: Way(answer=(UNHURRIED,), question_anew=". topics", answer_anew=". topics"),
    ApiKey.UNREGISTER_BROKER: Way(question_anew="."),
    ApiKey.UNREGISTER_CONTROLLER: Way(question_anew="."),
    ApiKey.DESCRIBE_TRANSACTIONS: Way(
        answer=(
            UNHURRIED,
            Change("transaction_states.error_code", REFUSED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            Change("transaction_states.transaction_state", REFUSED, ""),
            Change("transaction_states.transaction_timeout_ms", REFUSED, 0),
            Change("transaction_states.transaction_start_time_ms", REFUSED, 0),
            Change("transaction_states.producer_id", REFUSED, 0),
            Change("transaction_states.producer_epoch", REFUSED, 0),
            Change("transaction_states.topics", REFUSED, []),
        ),
        question_anew=".",
        answer_anew=". transaction_states",
    ),
    ApiKey.LIST_TRANSACTIONS: Way(answer=(UNHURRIED,), answer_anew="."),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Way(answer=(UNHURRIED,), question_anew=".", answer_anew="."),
    ApiKey.SHARE_GROUP_DESCRIBE: Way(answer=(UNHURRIED,), question_anew=".", answer_anew=". groups.members.assignment"),
    ApiKey.STREAMS_GROUP_DESCRIBE: Way(answer=(UNHURRIED,), question_anew=".", answer_anew="."),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Way(own=True),
    ApiKey.PUSH_TELEMETRY: Way(own=True),
    ApiKey.LIST_CONFIG_RESOURCES: Way(answer=(UNHURRIED,), answer_anew=". config_resources"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Way(
        instead=ApiKey.METADATA,
        answer=(
            UNHURRIED,
            Change("topics.partitions.leader_id", VIRTUAL, NODE_OF_AN_EMPTY_MESH),
            Change("topics.partitions.leader_epoch", LEADER_EPOCHS, -1),
            Change("topics.partitions.replica_nodes", VIRTUAL, [NODE_OF_AN_EMPTY_MESH]),
            Change("topics.partitions.isr_nodes", VIRTUAL, [NODE_OF_AN_EMPTY_MESH]),
            Change("topics.partitions.offline_replicas", VIRTUAL, []),
            Change("topics.partitions.eligible_leader_replicas", VIRTUAL, []),
            Change("topics.partitions.last_known_elr", VIRTUAL, []),
        ),
        answer_anew=". topics topics.partitions",
    ),
    ApiKey.SHARE_FETCH: Way(
        answer=(UNHURRIED, *SHARE_HINTS),
        question_anew="topics topics.partitions",
        answer_anew=". responses responses.partitions.current_leader",
    ),
    ApiKey.SHARE_ACKNOWLEDGE: Way(
        answer=(UNHURRIED, *SHARE_HINTS),
        question_anew="topics",
        answer_anew=". responses responses.partitions.current_leader",
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Way(answer=(UNHURRIED,), question_anew=".", answer_anew=". groups"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Way(answer=(UNHURRIED,), answer_anew="."),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Way(answer=(UNHURRIED,), answer_anew="."),
}
