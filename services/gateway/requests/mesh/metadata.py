"""Metadata: the mesh as one cluster.

Theory of operation
1. The gateway asks for a named topic at the cluster that owns it, and at no other. For "all topics" the gateway asks
   every cluster that can be reached. Each cluster contributes only the topics that it owns, but no internal ones. Ids
   are the mesh's own (`topic_ids`), in questions as in answers. The others' topics are added as by rule 4.
2. A Metadata request never creates a topic, but for one case: the client names a missing topic and allows creation.
   Then the gateway asks the owner again, with that permission, or has it create the topic with the cluster's
   `partition_count`.
3. Brokers, controller, leaders and replicas are virtual nodes, and leader epochs are -1. So nothing that clients keep
   from one cluster can contradict what they see after the topic has moved.
4. A topic of a cluster that can't be reached is shown as it was seen last, there or on its cluster before. So running
   clients keep their assignments, and notice the outage only in the partitions concerned. If the topic was never seen,
   a client that may create topics (a producer) gets LEADER_NOT_AVAILABLE and tries again. Any other client gets
   UNKNOWN_TOPIC_OR_PARTITION: a librdkafka consumer does not join its group before it knows the state of all its
   topics. Without a rule a topic is UNKNOWN_TOPIC_OR_PARTITION.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from services.gateway.requests.knowledge import TopicKnowledge
from services.gateway.requests.pauses import PAUSE, TOPICS_IN_A_STEP, few_at_a_time, with_pauses
from services.gateway.requests.plan import (
    Body,
    Call,
    Command,
    Controller,
    Gather,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
    ask_all,
)
from services.gateway.requests.topic_ids import HIGHEST_METADATA, mesh_topic_id, topic_names
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.topics.new_topics import why_refused
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.in_steps import encode_in_steps
from services.gateway.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from services.gateway.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from services.gateway.wire.schema import NO_UUID

AUTHORIZED_OPERATIONS_SINCE = 8
IDS_USABLE_SINCE = 12
"""Versions 10 and 11 carry topic ids in requests, but no broker accepts them."""
CREATE_TIMEOUT_MS = 5_000
CREATE_VERSION = 4
RETRY_PAUSE_S = 0.1
"""Seconds before an answer about a topic without leaders: librdkafka asks again at once, a thousand times a second
without this pause."""


@dataclass(slots=True)
class _Wanted:
    """The request of one client, and the answer about each topic so far."""

    message: MetadataRequest
    topics: dict[str, MetadataResponseTopic] = field(default_factory=dict)
    by_id: set[str] = field(default_factory=set)
    """Names of the topics for which the client asks by id."""

    def may_be_created(self, name: str) -> bool:
        """Whether the gateway may create the missing topic.

        It creates no topic that the client names by id, because the topic of an id existed already.
        """
        return self.topics[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name not in self.by_id

    def unknown(self, name: str, error: ErrorCode) -> None:
        self.topics[name] = MetadataResponseTopic(error_code=error, name=name)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(MetadataRequest)
    wanted = _Wanted(message)
    everything = message.topics is None or (request.version == 0 and not message.topics)
    if everything:
        yield from _all_topics(mesh, wanted)
        topics = [*wanted.topics.values()]
    else:
        names, topics = yield from _names(mesh, wanted, message.topics or [], request.version)
        yield from _named_topics(mesh, wanted, names)
        topics += [_answer_to_id(mesh, wanted.topics[name], name in wanted.by_id) for name in names]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node.node_id, node.host, node.port) for node in mesh.nodes.all],
        cluster_id=mesh.mesh_id,
        controller_id=mesh.nodes.controller,
        topics=topics,
    )


def written_in_steps(plan: Plan, version: int) -> Plan:
    """The plan with its answer as bytes, if the answer has very many topics."""
    answer = yield from plan
    if not isinstance(answer, MetadataResponse) or len(answer.topics) <= TOPICS_IN_A_STEP:
        return answer
    written, codes = (yield from with_pauses(encode_in_steps(answer, version))), {answer.error_code}
    for some in few_at_a_time(answer.topics):
        codes.update(topic.error_code for topic in some)
        codes.update(partition.error_code for topic in some for partition in topic.partitions)
        if answer.topics:
            yield PAUSE
    return Body((written,), codes)


def described(mesh: MeshView, names: list[str] | None) -> Generator[Command, Any, list[MetadataResponseTopic]]:
    """These topics as clients see them, or all of the mesh, in the order of their names; no topic is created."""
    message = MetadataRequest(allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    wanted = _Wanted(message)
    if names is None:
        yield from _all_topics(mesh, wanted)
    else:
        yield from _named_topics(mesh, wanted, names)
    return [wanted.topics[name] for name in sorted(wanted.topics)]


def _call(mesh: MeshView, cluster: str, topics: list[str] | None, wanted: _Wanted, *, create: bool = False) -> Call:
    version = highest_version(mesh, cluster, ApiKey.METADATA, HIGHEST_METADATA)
    operations = wanted.message.include_topic_authorized_operations and version >= AUTHORIZED_OPERATIONS_SINCE
    message = MetadataRequest(
        topics=None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
    )
    return Call(cluster, message, version)


def _all_topics(mesh: MeshView, wanted: _Wanted) -> Generator[Command, Any, None]:
    reachable = [name for name in mesh.table.clusters if mesh.clusters[name].available]
    calls = [_call(mesh, cluster, None, wanted) for cluster in reachable]
    answers = yield from ask_all(calls, MetadataResponse)
    # the last topics of others are not for a client that the cluster takes by an identity of its own
    silent = {name for name, cluster in mesh.table.clusters.items() if cluster.identity is None}
    for cluster, answer in zip(reachable, answers, strict=True):
        if isinstance(answer, Unreachable):
            continue
        silent.discard(cluster)
        for some in few_at_a_time(answer.topics):
            for topic in some:
                name = topic.name
                if name is not None and not is_internal(name) and mesh.table.cluster_of(name) == cluster:
                    wanted.topics[name] = _shown(mesh, cluster, topic)
            if answer.topics:
                yield PAUSE
    if silent:
        yield from _show_as_seen_last(mesh, silent, wanted)


def _show_as_seen_last(mesh: MeshView, silent: set[str], wanted: _Wanted) -> Generator[Command, Any, None]:
    """The topics of clusters that do not answer, as far as a cluster has shown them.

    Without them, consumers that subscribe by pattern would give their partitions away at each outage.
    """
    names = [*{name for knowledge in mesh.clusters.values() for name in knowledge.topics if not is_internal(name)}]
    for some in few_at_a_time(names):
        for name in some:
            cluster = mesh.table.cluster_of(name)
            if cluster in silent and _known(mesh, cluster, name) is not None:
                wanted.topics[name] = _seen_last(mesh, cluster, name, wanted)
        if names:
            yield PAUSE


def _names(
    mesh: MeshView, wanted: _Wanted, topics: list[MetadataRequestTopic], version: int
) -> Generator[Command, Any, tuple[list[str], list[MetadataResponseTopic]]]:
    """The names that the client asks for, those of topic ids included; and the answers for unknown ids."""
    by_id = yield from topic_names(mesh, [t.topic_id for t in topics if t.name is None and version >= IDS_USABLE_SINCE])
    names: list[str] = []
    failed: list[MetadataResponseTopic] = []
    for topic in topics:
        name = by_id.get(topic.topic_id) if topic.name is None else topic.name
        if name is not None:
            names.append(name)
            if topic.name is None:
                wanted.by_id.add(name)
        elif topic.topic_id == NO_UUID or version < IDS_USABLE_SINCE:
            failed.append(MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=None))
        else:
            failed.append(_unknown_id(topic.topic_id))
    return list(dict.fromkeys(names)), failed


def _unknown_id(topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)


def _answer_to_id(mesh: MeshView, topic: MetadataResponseTopic, by_id: bool) -> MetadataResponseTopic:
    """A client that asks by id does not get the name of a deleted topic."""
    gone = by_id and topic.name is not None and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _unknown_id(mesh_topic_id(mesh.mesh_id, str(topic.name))) if gone else topic


def _named_topics(mesh: MeshView, wanted: _Wanted, names: list[str]) -> Generator[Command, Any, None]:
    by_cluster: dict[str, list[str]] = {}
    for name in names:
        cluster = mesh.table.cluster_of(name)
        if cluster is None:
            wanted.unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            by_cluster.setdefault(cluster, []).append(name)
    yield from _ask_owners(mesh, wanted, by_cluster, create=False)
    if any(wanted.topics[name].error_code == ErrorCode.LEADER_NOT_AVAILABLE for name in names):
        yield Gather((), lambda _: False, RETRY_PAUSE_S, waits_for="leader")
    if not wanted.message.allow_auto_topic_creation:
        return
    gone = {
        cluster: [name for name in owned if wanted.may_be_created(name)]
        for cluster, owned in by_cluster.items()
        if mesh.clusters[cluster].available
    }
    for names in gone.values():
        for name in [each for each in names if why_refused(each, mesh) is not None]:
            names.remove(name)
            wanted.unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    missing = {cluster: names for cluster, names in gone.items() if names}
    if missing:
        yield from _create(mesh, wanted, missing)


def _ask_owners(
    mesh: MeshView, wanted: _Wanted, by_cluster: dict[str, list[str]], *, create: bool
) -> Generator[Command, Any, None]:
    calls = [_call(mesh, cluster, topics, wanted, create=create) for cluster, topics in by_cluster.items()]
    answers = yield from ask_all(calls, MetadataResponse)
    for (cluster, topics), answer in zip(by_cluster.items(), answers, strict=True):
        told = {} if isinstance(answer, Unreachable) else {topic.name: topic for topic in answer.topics}
        for name in topics:
            topic = told.get(name)
            if topic is None:
                wanted.topics[name] = _seen_last(mesh, cluster, name, wanted)
            else:
                wanted.topics[name] = _shown(mesh, cluster, topic)


def _seen_last(mesh: MeshView, cluster: str, name: str, wanted: _Wanted) -> MetadataResponseTopic:
    """The answer about a topic whose owner does not answer."""
    known = _known(mesh, cluster, name)
    if known is None:
        creates = wanted.message.allow_auto_topic_creation
        error = ErrorCode.LEADER_NOT_AVAILABLE if creates else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(error_code=error, name=name)
    partitions = [MetadataResponsePartition(partition_index=n, leader_id=0) for n in range(len(known.leaders))]
    return _shown(mesh, cluster, MetadataResponseTopic(0, name, partitions=partitions))


def _known(mesh: MeshView, cluster: str, name: str) -> TopicKnowledge | None:
    """The topic as its owner showed it last, or else the cluster that had the topic before."""
    known = mesh.clusters[cluster].topics.get(name)
    route = mesh.table.route(name)
    if known is not None or route is None or route.before is None:
        return known
    left = mesh.clusters.get(route.before.cluster)
    return None if left is None else left.topics.get(name)


def _create(mesh: MeshView, wanted: _Wanted, missing: dict[str, list[str]]) -> Generator[Command, Any, None]:
    """Creates missing topics, because the client allows creation.

    If the mesh has a partition count for a cluster, the cluster gets CreateTopics with this count; other clusters
    choose the count themselves.
    """
    told = {cluster: names for cluster, names in missing.items() if mesh.table.clusters[cluster].partition_count}
    calls = [
        Call(
            cluster,
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name, num_partitions=mesh.table.clusters[cluster].partition_count, replication_factor=-1
                    )
                    for name in names
                ],
                timeout_ms=CREATE_TIMEOUT_MS,
            ),
            CREATE_VERSION,
            Controller(),
            Lane.CLIENT,  # others must not wait behind it
        )
        for cluster, names in told.items()
    ]
    yield from ask_all(calls, CreateTopicsResponse)
    yield from _ask_owners(mesh, wanted, {c: names for c, names in missing.items() if c not in told}, create=True)
    yield from _ask_owners(mesh, wanted, told, create=False)


def _shown(mesh: MeshView, cluster: str, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """A topic of `cluster` as clients see it."""
    node = mesh.nodes.of_cluster(cluster)
    nodes, none = [node], list[int]()  # of all partitions: with 100,000 topics fewer objects are shorter collections
    exists = topic.name is not None and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic_id = mesh_topic_id(mesh.mesh_id, str(topic.name)) if exists else NO_UUID
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=node if partition.leader_id >= 0 else -1,
                leader_epoch=-1,
                replica_nodes=nodes,
                isr_nodes=nodes,
                offline_replicas=none,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=topic.topic_authorized_operations,
    )
