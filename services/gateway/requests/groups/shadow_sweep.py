"""Deletes shadow topics whose topic is gone: each gateway looks for such shadows from time to time.

Theory of operation
1. A shadow of a topic that exists may serve a group that is away for now, so it stays. A topic that was deleted has no
   readers. If somebody creates this topic again, the next comparison of its groups makes another shadow.
2. A gateway deletes a topic only if the topic has the mark of shadows and no record, and no client knows the topic by a
   rule. Its owner must have answered, asked by name, that the topic does not exist. A topic that the gateway may not
   see has another error.
3. The topic must have been gone for `GONE_S`: an application may delete its topic and create it again.
4. Several gateways may do the same at once: the later ones hear that the shadow is gone. One worker of a gateway looks
   for all its workers.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final

import structlog

from mesh.topics import is_own_topic
from mesh.transactions import LogPlace
from services.gateway.requests.groups.shadow_topics import MARK, TIMEOUT_MS
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import (
    Ask,
    Call,
    Command,
    Controller,
    Lane,
    MeshView,
    ask,
)
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.topics.describe_configs import Resource
from services.gateway.requests.transactions.stable_offsets import READ_UNCOMMITTED, question
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from services.gateway.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from services.gateway.wire.messages.list_offsets import ListOffsetsResponse
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

GONE_S: Final = 600.0
"""Seconds for which a gateway has seen a shadow without its topic before it deletes the shadow."""
MOST_AT_ONCE: Final = 100
"""Shadows of one cluster in one sweep; the next sweep goes on."""
METADATA_VERSION, CONFIGS_VERSION, DELETE_VERSION = 12, 1, 3

Orphans = Mapping[tuple[str, str], float]
"""By the shadow's cluster and name, since when its topic was not seen, in monotonic seconds."""

log = structlog.get_logger(__name__)


def sweep_shadows(before: Orphans, mesh: MeshView) -> Generator[Command, Any, dict[tuple[str, str], float]]:
    """Deletes the shadows whose topics have been gone for long enough. Returns the others, for the next call."""
    there = yield from _topics(mesh)
    alone = {place: before.get(place, mesh.now) for place in _without_topic(there, mesh)}
    for home in mesh.table.clusters:
        due = [name for (at, name), since in alone.items() if at == home and mesh.now - since >= GONE_S]
        for name in (yield from _deleted(home, due[:MOST_AT_ONCE], mesh)):
            del alone[home, name]
    return alone


def _topics(mesh: MeshView) -> Generator[Command, Any, dict[str, set[str]]]:
    """By cluster, the names of all its topics, as the cluster answers now. Clusters without an answer are left out."""
    calls = tuple(_about(cluster, None, mesh) for cluster in mesh.table.clusters if mesh.clusters[cluster].available)
    outcomes = yield Ask(calls)
    return {
        call.cluster: {str(topic.name) for topic in outcome.topics}
        for call, outcome in zip(calls, outcomes, strict=True)
        if isinstance(outcome, MetadataResponse)
    }


def _about(cluster: str, topics: list[str] | None, mesh: MeshView) -> Call:
    """The question about these topics, or about all, with the cluster's own names."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    message = MetadataRequest(named, allow_auto_topic_creation=False)
    version = highest_version(mesh, cluster, ApiKey.METADATA, METADATA_VERSION)
    return Call(cluster, message, version, by_mesh=True, own_names=True)


def _without_topic(there: Mapping[str, set[str]], mesh: MeshView) -> Iterable[tuple[str, str]]:
    """Topics that may be shadows, and whose owners list no such topic."""
    for home, names in there.items():
        for name in names:
            route = mesh.table.route(name)
            if route is None or route.cluster == home or route.upstream_topic != name:
                continue
            if is_internal(name) or is_own_topic(name) or mesh.table.is_known_to_others(home, name):
                continue
            if route.cluster in there and name not in there[route.cluster]:
                yield home, name


def _deleted(home: str, names: list[str], mesh: MeshView) -> Generator[Command, Any, list[str]]:
    for sieve in (_marked, _empty, _gone):
        if names:
            names = yield from sieve(home, names, mesh)
    if not names:
        return []
    message = DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)
    version = highest_version(mesh, home, ApiKey.DELETE_TOPICS, DELETE_VERSION)
    call = Call(home, message, version, Controller(), Lane.CLIENT, by_mesh=True, own_names=True)
    outcome = yield from ask(call, DeleteTopicsResponse)
    done: list[str] = []
    for each in outcome.responses if isinstance(outcome, DeleteTopicsResponse) else ():
        if each.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            done.append(str(each.name))
        else:
            log.warning(
                "a shadow topic without its topic can't be deleted",
                cluster=home,
                topic=each.name,
                error=error_name(each.error_code),
            )
    if done:
        log.info("shadow topics deleted: their topics are gone", cluster=home, topics=done)
    return done


def _marked(home: str, names: list[str], mesh: MeshView) -> Generator[Command, Any, list[str]]:
    name, value = MARK
    message = DescribeConfigsRequest([DescribeConfigsResource(Resource.TOPIC, topic, [name]) for topic in names])
    version = highest_version(mesh, home, ApiKey.DESCRIBE_CONFIGS, CONFIGS_VERSION)
    outcome = yield from ask(Call(home, message, version, by_mesh=True, own_names=True), DescribeConfigsResponse)
    if not isinstance(outcome, DescribeConfigsResponse):
        return []
    return [
        result.resource_name
        for result in outcome.results
        if not result.error_code and any((each.name, each.value) == (name, value) for each in result.configs)
    ]


def _empty(home: str, names: list[str], mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """Those of whose partitions each leader says that nothing was ever written."""
    known = mesh.clusters[home].by_own_names
    by_leader: dict[Place, list[LogPlace]] = {}
    for name in names:
        for partition in range(known.partition_count(name) or 0):
            leader = known.leader(name, partition)
            if leader is not None:
                by_leader.setdefault(Place(home, leader), []).append(LogPlace(home, name, partition))
    outcomes = yield Ask(tuple(question(at, led, READ_UNCOMMITTED, mesh) for at, led in by_leader.items()))
    empty: dict[str, int] = {}
    for outcome in outcomes:
        for topic in outcome.topics if isinstance(outcome, ListOffsetsResponse) else ():
            ends = [part.offset for part in topic.partitions if not part.error_code]
            empty[topic.name] = empty.get(topic.name, 0) + ends.count(0)
    return [name for name in names if empty.get(name, 0) == known.partition_count(name)]


def _gone(home: str, names: list[str], mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """Those that do not exist, as their owners answer."""
    by_owner: dict[str, list[str]] = {}
    for name in names:
        owner = mesh.table.cluster_of(name)
        if owner is not None and owner != home:
            by_owner.setdefault(owner, []).append(name)
    calls = tuple(_about(owner, asked, mesh) for owner, asked in by_owner.items())
    outcomes = yield Ask(calls)
    return [
        str(topic.name)
        for outcome in outcomes
        if isinstance(outcome, MetadataResponse)
        for topic in outcome.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
