"""The allowed differences between the answers of two endpoints, with reasons. All else has to be equal.

Before a rule is applied, `bindings.py` has replaced values that endpoints generate by the recorded values: topic ids,
member ids, producer ids, fetch sessions, nodes. These values are equal if each endpoint uses its own values
consistently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ANY = "*"


class How(StrEnum):
    IGNORED = "not compared"
    THERE = "both have a value, or neither has"
    HIDDEN = "B may have none"
    UNTOLD = "B may say that it does not tell it"
    UNORDERED = "in any order"
    FEWER = "B may lack it"
    MORE = "A may lack it"
    AT_LEAST = "B may be higher"
    AT_MOST = "B may be lower"
    NEWS = "only partitions of which both bring records, or one an error"
    LOG = "compared as one log, over all answers"


@dataclass(frozen=True, slots=True)
class Rule:
    api: str
    path: str
    """The path of the field, by Kafka's names. Elements of arrays are `[]` for all, or `[KEY]` for the element with
    this key.

    A `*` at the beginning of the path stands for any place.
    """
    how: How
    why: str

    def covers(self, api: str, path: str, place: str) -> bool:
        if self.api not in (ANY, api):
            return False
        if self.path.startswith(ANY):
            end = self.path.removeprefix(ANY)
            return path.endswith(f".{end}") or path == end
        return self.path in (path, place)


BETWEEN_BROKERS = (52, 53, 54, 55, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87)
LOGIN = (17, 36)
TELEMETRY = (71, 72)
OF_A_CLUSTER = ("__consumer_offsets", "__transaction_state", "__share_group_state")
NO_ORDER = "Kafka gathers these in maps, whose order it does not promise."
NO_EPOCHS = "Epochs of leaders differ between clusters, so an endpoint of several shows none (KIP-320 allows -1)."
OWN_NODES = "An endpoint has the nodes that it has; later requests show that clients get through to them."

RULES: Sequence[Rule] = (
    Rule(ANY, "*ThrottleTimeMs", How.IGNORED, "A broker delays by its load and quotas, which no answer promises."),
    Rule(
        ANY, "*ErrorMessage", How.IGNORED, "Kafka promises codes; texts are for people, and change with its versions."
    ),
    Rule("ApiVersions", "FinalizedFeaturesEpoch", How.IGNORED, "It counts the metadata records of one cluster."),
    Rule("ApiVersions", "FinalizedFeatures", How.UNORDERED, NO_ORDER),
    Rule("ApiVersions", "SupportedFeatures", How.UNORDERED, NO_ORDER),
    Rule("ApiVersions", "ApiKeys[].MinVersion", How.AT_MOST, "The gateway translates versions that Kafka 4 dropped."),
    Rule(
        "ApiVersions",
        "ApiKeys[24].MaxVersion",
        How.AT_MOST,
        "AddPartitionsToTxn 4 and 5 are spoken between brokers, never by clients.",
    ),
    *(
        Rule("ApiVersions", f"ApiKeys[{key}]", How.FEWER, "It is spoken by the brokers and controllers of one cluster.")
        for key in BETWEEN_BROKERS
    ),
    *(
        Rule(
            "ApiVersions", f"ApiKeys[{key}]", How.FEWER, "Clients do not log in to the gateway: it logs in to clusters."
        )
        for key in LOGIN
    ),
    *(
        Rule("ApiVersions", f"ApiKeys[{key}]", How.MORE, "Brokers offer it with a plugin only; the gateway is one.")
        for key in TELEMETRY
    ),
    Rule("Metadata", "Brokers", How.IGNORED, OWN_NODES),
    Rule("DescribeCluster", "Brokers", How.IGNORED, OWN_NODES),
    Rule(
        "DescribeCluster",
        "ClusterAuthorizedOperations",
        How.UNTOLD,
        "The gateway does not ask clusters what its clients may do there; it answers what Kafka answers to a client "
        "that does not ask for it.",
    ),
    Rule("FindCoordinator", "*Host", How.IGNORED, OWN_NODES),
    Rule("FindCoordinator", "*Port", How.IGNORED, OWN_NODES),
    *(
        Rule(
            "Metadata",
            f"Topics[{topic}]",
            How.FEWER,
            "Where all topics are listed, those of a cluster itself stay away.",
        )
        for topic in OF_A_CLUSTER
    ),
    Rule("Metadata", "Topics", How.UNORDERED, NO_ORDER),
    Rule("Metadata", "Topics[].Partitions", How.UNORDERED, NO_ORDER),
    Rule("Metadata", "Topics[].Partitions[].LeaderEpoch", How.HIDDEN, NO_EPOCHS),
    Rule("DescribeTopicPartitions", "Topics[].Partitions[].LeaderEpoch", How.HIDDEN, NO_EPOCHS),
    Rule("OffsetForLeaderEpoch", "Topics[].Partitions[].LeaderEpoch", How.HIDDEN, NO_EPOCHS),
    Rule(
        "OffsetForLeaderEpoch",
        "Topics[].Partitions[].EndOffset",
        How.AT_LEAST,
        "Who shows no epochs says that nothing was cut off: the end of an epoch lies behind every offset.",
    ),
    Rule("Produce", "Responses", How.UNORDERED, NO_ORDER),
    Rule("Produce", "Responses[].PartitionResponses", How.UNORDERED, NO_ORDER),
    Rule("ListGroups", "Groups", How.UNORDERED, NO_ORDER),
    Rule("JoinGroup", "Members", How.UNORDERED, NO_ORDER),
    Rule("OffsetFetch", "*CommittedLeaderEpoch", How.HIDDEN, NO_EPOCHS),
    Rule("OffsetFetch", "Groups[].Topics", How.UNORDERED, NO_ORDER),
    Rule("OffsetFetch", "Groups[].Topics[].Partitions", How.UNORDERED, NO_ORDER),
    Rule("OffsetFetch", "Topics", How.UNORDERED, NO_ORDER),
    Rule("OffsetFetch", "Topics[].Partitions", How.UNORDERED, NO_ORDER),
    Rule("ListOffsets", "Topics", How.UNORDERED, NO_ORDER),
    Rule("ListOffsets", "Topics[].Partitions", How.UNORDERED, NO_ORDER),
    Rule("ListOffsets", "Topics[].Partitions[].LeaderEpoch", How.HIDDEN, NO_EPOCHS),
    Rule(
        "Fetch",
        "Responses",
        How.NEWS,
        "Which poll brings a record, and when a partition without news is named, depends on time.",
    ),
    Rule(
        "Fetch",
        "Responses[].Partitions[].Records",
        How.LOG,
        "Which poll brings a record depends on time; what stands in the log does not.",
    ),
)


def rule_of(rules: Sequence[Rule], api: str, path: str, place: str) -> Rule | None:
    """The first that covers the place."""
    return next((rule for rule in rules if rule.covers(api, path, place)), None)
