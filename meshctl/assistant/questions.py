"""The tools that ask: clusters, topics, groups, rules, history, members, and what moves.

Each tool is one call to control. Its first parameter is the connection, which the server gives; its docstring is the
description that an assistant reads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from google.protobuf.message import Message
from pydantic import Field

from mesh.rpc import admin, instances, lineage, proposals, record_rules, replays, topic_moves, topics
from mesh.wording import rule_text, short
from meshctl import wording
from meshctl.assistant.arguments import USUAL_PAGE, Group, Name, Size, Text, Token, Topic, named
from meshctl.assistant.lag import behind
from meshctl.connection import Connection
from meshctl.output import as_dict

Document = dict[str, Any]
Kind = Literal["gateway", "router", "sidecar"]
_STATES = {
    "any": topics.CONSUMER_GROUP_STATE_UNSPECIFIED,
    "stable": topics.CONSUMER_GROUP_STATE_STABLE,
    "empty": topics.CONSUMER_GROUP_STATE_EMPTY,
}
_ORDERS = {
    "name": topics.TOPIC_ORDER_NAME,
    "cluster": topics.TOPIC_ORDER_CLUSTER,
    "partitions": topics.TOPIC_ORDER_PARTITIONS,
}
_DIRECTIONS = {
    "both": lineage.LINEAGE_DIRECTION_BOTH,
    "upstream": lineage.LINEAGE_DIRECTION_UPSTREAM,
    "downstream": lineage.LINEAGE_DIRECTION_DOWNSTREAM,
}


def mesh_status(connection: Connection) -> Document:
    """The state of the mesh now: the revision in force, a rollout under way (pending_revision is not 0), a freeze,
    and the problems of control. `away` names the clusters, gateways, routers and record rules that do not work, a
    sentence each. An empty `away` means that control knows of no part that is away.
    """
    status = connection.status()
    found = as_dict(status)
    kept = ("revision", "pending_revision", "last_position", "published_position", "scheduled_changes", "problems")
    made = {name: found[name] for name in kept}
    if "frozen" in found:
        made["frozen"] = found["frozen"]
    made["away"] = away(status)
    made["counts"] = {name: len(found[name]) for name in ("members", "clusters", "instances", "record_rules")}
    return made


def away(status: admin.MeshStatus) -> list[str]:
    """The parts of the mesh that do not work, a sentence each."""
    found = [
        f"Cluster {each.spec.cluster_name} does not answer: {each.state_reason or 'no reason is known'}."
        for each in status.clusters
        if each.state == admin.CLUSTER_STATE_UNREACHABLE
    ]
    found += [
        f"{wording.member_kind(each.kind).capitalize()} {short(each.name)} is away: no router hears of it."
        for each in status.members
        if each.left_behind
    ]
    found += [
        f"{short(each.name)} refused the table of revision {each.revision}: {each.phase_reason}"
        for each in status.members
        if each.phase == admin.MEMBER_PHASE_REFUSED
    ]
    found += [
        f"Record rule {short(each.name)} does not run: {each.progress.problem}"
        for each in status.record_rules
        if each.progress.problem
    ]
    return found


def list_members(
    connection: Connection,
    kind: Annotated[Kind | None, Field(description="Only members of this kind.")] = None,
    only_away: Annotated[bool, Field(description="Only those that are left behind or refused their table.")] = False,
) -> Document:
    """The gateways, routers and sidecars that control has heard of. Each has its revision, its phase, its clients and
    the time when control last heard of it. left_behind means: no router hears of this gateway, which may still serve
    clients under an older table.
    """
    status = connection.status()
    found = [
        as_dict(each)
        for each in status.members
        if (kind is None or wording.member_kind(each.kind) == kind)
        and (not only_away or each.left_behind or each.phase == admin.MEMBER_PHASE_REFUSED)
    ]
    return {"members": found, "revision_in_force": str(status.revision)}


def list_clusters(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Message:
    """The registered upstream clusters of Kafka, each with addresses, brokers and state. The cluster with home: true
    holds the events of the mesh. CLUSTER_STATE_UNREACHABLE means that the cluster did not answer control's last
    question.
    """
    request = admin.ListClustersRequest(page_size=page_size, page_token=page_token)
    return connection.call(connection.clusters.ListClusters, request)


def list_topics(
    connection: Connection,
    prefix: Annotated[Text, Field(description="Only topics whose names begin so.")] = "",
    part: Annotated[Text, Field(description="Only topics whose names have this part.")] = "",
    cluster: Annotated[Text, Field(description="Only topics of this cluster.")] = "",
    order: Literal["name", "cluster", "partitions"] = "name",
    with_lag: Annotated[bool, Field(description="Whether to count groups and their lag, which takes longer.")] = False,
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The topics of all clusters by the names that clients know: cluster, name there, partitions, and the rule that
    leads there. With with_lag: the number of groups, and the largest lag of them, in records. `problems` names
    clusters that did not answer: their topics are missing.
    """
    request = topics.ListTopicsRequest(
        prefix=prefix, part=part, cluster=cluster, order=_ORDERS[order], groups=with_lag, page_size=page_size,
        page_token=page_token,
    )  # fmt: skip
    return connection.call(connection.topics.ListTopics, request)


def show_topic(connection: Connection, topic: Topic) -> Document:
    """One topic: its cluster, its settings, and `readers`, the groups that read it, the largest lag first. Lag is in
    records; a reader without `lag` has one that is not known.
    """
    answer = connection.call(connection.topics.GetTopic, topics.GetTopicRequest(name=named("topics", topic)))
    found = as_dict(answer)
    found["readers"].sort(key=lambda each: -int(each.get("lag", -1)))
    return found


def explain_topic(
    connection: Connection,
    topic: Topic,
    client_id: Annotated[Text, Field(description="As a client with this client.id sees it.")] = "",
    principal: Annotated[Text, Field(description="As this principal sees it: User:alice.")] = "",
    address: Annotated[Text, Field(description="As a client from this IP address sees it.")] = "",
) -> Message:
    """Why clients find a topic where they find it. `tried` has the rules in the order tried, and the rule that
    decides has matched: true. The answer also has the cluster, the name there, and for each partition its leader and
    offsets. An empty cluster means that no rule leads anywhere: clients get UNKNOWN_TOPIC_OR_PARTITION.
    """
    client = admin.ClientIdentity(principal=principal, client_id=client_id, address=address)
    return connection.call(connection.decisions.Explain, admin.ExplainRequest(topic=topic, client=client))


def list_groups(
    connection: Connection,
    part: Annotated[Text, Field(description="Only groups whose names have this part.")] = "",
    state: Literal["any", "stable", "empty"] = "any",
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The consumer groups of all clusters, by name: state, members, home cluster, and lag in records over all their
    partitions. CONSUMER_GROUP_STATE_EMPTY means that the group has no member, so nobody reads.
    """
    request = topics.ListGroupsRequest(part=part, state=_STATES[state], page_size=page_size, page_token=page_token)
    return connection.call(connection.groups.ListGroups, request)


def show_group(
    connection: Connection,
    group: Group,
    topic: Annotated[Text, Field(description="Only its positions in this topic.")] = "",
) -> Document:
    """One consumer group: state, members with the number of their partitions, and its positions, the most records
    behind first. A position has the committed offset, and the first and the end offset of the partition; -1 is not
    known. The host of a member is the gateway's address. To learn why a group is behind, use explain_lag.
    """
    answer = connection.call(connection.groups.GetGroup, topics.GetGroupRequest(name=named("groups", group)))
    kept = sorted((each for each in answer.positions if topic in ("", each.topic)), key=behind, reverse=True)
    del answer.positions[:]
    answer.positions.extend(kept)
    return as_dict(answer)


def show_lineage(
    connection: Connection,
    kind: Annotated[Literal["topic", "group", "application"], Field(description="What `name` is.")],
    name: Annotated[Text, Field(min_length=1, description="An application is written as User:alice/orders.")],
    direction: Literal["both", "upstream", "downstream"] = "both",
    depth: Annotated[int, Field(ge=1, le=20, description="Steps; to the next topic behind a group are three.")] = 4,
    most_edges: Annotated[int, Field(ge=1, le=500, description="The nearest come first.")] = 100,
) -> Message:
    """The way of records before and behind a topic, a group or an application, by the traffic that control has seen.
    Applications produce to a topic, groups read it, and the applications of these groups produce to further topics.
    Record rules copy from topic to topic. An edge goes in the direction of the records. An edge that is not `present`
    was seen last at last_time.
    """
    request = lineage.QueryLineageRequest(
        **{kind: name}, direction=_DIRECTIONS[direction], depth=depth, most_edges=most_edges
    )
    return connection.call(connection.lineage.QueryLineage, request)


def list_rules(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Document:
    """The forwarding rules in the order tried: the first rule that matches decides. `text` is the rule in words.
    `revision` is that of the whole rule set.
    """
    request = admin.ListRulesRequest(page_size=page_size, page_token=page_token)
    answer = connection.call(connection.rules.ListRules, request)
    found = as_dict(answer)
    for shown, rule in zip(found["rules"], answer.rules, strict=True):
        shown["text"] = rule_text(rule.spec)
    return found


def history(
    connection: Connection,
    topic: Annotated[Text, Field(description="Only the decisions that changed where this topic is.")] = "",
    name: Annotated[
        Text, Field(description='Only about this: "rules/ID", "clusters/NAME", "recordrules/ID", "acls", "quotas".')
    ] = "",
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The decisions about the mesh in words, the newest first: who decided what, when and why, and how the rollout
    ended. Give a topic or a name, or neither for all decisions.
    """
    request = admin.ListHistoryRequest(page_size=page_size, page_token=page_token)
    if topic:
        request.topic = topic
    if name:
        request.name = name
    return connection.call(connection.decisions.ListHistory, request)


def list_moves(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Message:
    """Moves of topics with their records to another cluster, the newest first: the open ones, and the last that ended.
    COPYING: a router copies, and clients notice nothing. CUTTING: gateways hold the topic for a moment. `problem` says
    what hinders a move.
    """
    request = topic_moves.ListTopicMovesRequest(page_size=page_size, page_token=page_token)
    return connection.call(connection.topic_moves.ListTopicMoves, request)


def list_record_rules(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Message:
    """Mirrors and content rules, which copy records from topic to topic: state, progress, lag in records, and `problem`
    where a rule does not run.
    """
    request = record_rules.ListRecordRulesRequest(page_size=page_size, page_token=page_token)
    return connection.call(connection.record_rules.ListRecordRules, request)


def list_replays(
    connection: Connection,
    only_open: Annotated[bool, Field(description="Only those that have not ended.")] = False,
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """Replays, copies, profiles and resets of offsets, the newest first: what each was ordered to do, by whom, its
    state and how far it is.
    """
    request = replays.ListReplaysRequest(open_only=only_open, page_size=page_size, page_token=page_token)
    return connection.call(connection.replays.ListReplays, request)


def show_replay(connection: Connection, replay: Annotated[Name, Field(description="Its id.")]) -> Message:
    """One replay or reset with its partitions. In a reset, committed_before is the offset of before (-1: none), and
    start_offset is the new offset.
    """
    request = replays.GetReplayRequest(name=named("replays", replay))
    return connection.call(connection.replays.GetReplay, request)


def list_proposals(
    connection: Connection,
    only_open: Annotated[bool, Field(description="Only those that wait for a second person.")] = True,
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The changes that wait for a second person, the newest first, with who proposed each and why. This server can't
    approve: a person does that by the console or `meshctl proposals`.
    """
    request = proposals.ListProposalsRequest(open_only=only_open, page_size=page_size, page_token=page_token)
    return connection.call(connection.approvals.ListProposals, request)


def show_proposal(connection: Connection, proposal: Annotated[Name, Field(description="Its id.")]) -> Message:
    """One change that waits for a second person, or has ended, with its plan. `fixed` is the part of a fact that must
    not differ when somebody approves.
    """
    request = proposals.GetProposalRequest(name=named("proposals", proposal))
    return connection.call(connection.approvals.GetProposal, request)


def list_instances(
    connection: Connection,
    sidecar: Annotated[Text, Field(description="Only those of this sidecar.")] = "",
    group: Annotated[Text, Field(description="Only those of this consumer group.")] = "",
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The consumer instances that sidecars hold for backends, and in `statuses` how each does: state, position,
    committed offset and lag by partition, and the problem if there is one. A PAUSED or DRAINED instance reads nothing
    until somebody resumes it.
    """
    request = instances.ListInstancesRequest(sidecar=sidecar, group=group, page_size=page_size, page_token=page_token)
    return connection.call(connection.instances.ListInstances, request)
