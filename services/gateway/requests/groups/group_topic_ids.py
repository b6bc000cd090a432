"""Topic ids in the APIs of groups: clients see the mesh's own, the coordinator sees its cluster's."""

from collections.abc import Generator, Iterable
from typing import Any, Protocol, TypeVar

from services.gateway.requests.plan import Call, Command, MeshView, Unreachable, ask, refresh
from services.gateway.requests.topic_ids import HIGHEST_METADATA, mesh_topic_id, topic_names
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import error_name
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class DescribedTopic(Protocol):
    topic_id: bytes
    topic_name: str


class Topic(Protocol):
    topic_id: bytes
    name: str


class AssignedTopic(Protocol):
    topic_id: bytes


def show_topic_ids(topics: Iterable[DescribedTopic], mesh: MeshView) -> None:
    """Puts the mesh's ids in the place of the cluster's, in answers that have names too."""
    for topic in topics:
        topic.topic_id = mesh_topic_id(mesh.mesh_id, topic.topic_name)


T = TypeVar("T", bound=Topic)


def name_topics(topics: Iterable[T], mesh: MeshView) -> Generator[Command, Any, list[T]]:
    """Puts names to topics that a client names by id; topics with an unknown id are left out."""
    topics = list(topics)
    names = yield from topic_names(mesh, [topic.topic_id for topic in topics])
    for topic in topics:
        topic.name = names.get(topic.topic_id, "")
    return [topic for topic in topics if topic.name]


def ids_at(cluster: str, mesh_ids: Iterable[bytes], mesh: MeshView) -> Generator[Command, Any, dict[bytes, bytes]]:
    """The cluster's ids by the mesh's; topics that the cluster does not have are left out."""
    names = yield from topic_names(mesh, mesh_ids)
    known = mesh.clusters[cluster].topics
    missing = sorted(name for name in names.values() if name not in known)
    if missing:
        yield from refresh(cluster, missing)
    return {mesh_id: known[name].topic_id for mesh_id, name in names.items() if name in known}


def names_at(
    cluster: str, ids: Iterable[bytes], mesh: MeshView
) -> Generator[Command, Any, dict[bytes, str] | Unreachable]:
    """Names by the cluster's ids; the cluster is asked once about unknown ids.

    Topics without a rule are left out.

    Unreachable if no broker can name some of the topics now: a broker learns of a new topic later than the coordinator.
    """
    wanted = set(ids)
    known = mesh.clusters[cluster].topic_names
    if strange := sorted(each for each in wanted if each not in known):
        # the gateway learns from each answer
        unknown = [MetadataRequestTopic(topic_id=each, name=None) for each in strange]
        question = MetadataRequest(topics=unknown, allow_auto_topic_creation=False)
        version = highest_version(mesh, cluster, ApiKey.METADATA, HIGHEST_METADATA)
        outcome = yield from ask(Call(cluster, question, version, by_mesh=True), MetadataResponse)
        if isinstance(outcome, Unreachable):
            return outcome
        for topic in outcome.topics:
            if topic.error_code and topic.topic_id in wanted and topic.topic_id not in known:
                return Unreachable(cluster, f"it does not tell the name of a topic: {error_name(topic.error_code)}")
    named = ((each, known.get(each)) for each in wanted)
    return {each: name for each, name in named if name is not None and mesh.table.cluster_of(name) is not None}


A = TypeVar("A", bound=AssignedTopic)


def shown(assigned: Iterable[A], home: str, mesh: MeshView) -> Generator[Command, Any, list[A] | Unreachable]:
    """An assignment by the home's coordinator with the mesh's ids; topics without a rule are not handed out.

    The assignment is whole or not there at all: a coordinator sends it once, and again to a member that has got an
    error instead.
    """
    assigned = list(assigned)
    names = yield from names_at(home, [topic.topic_id for topic in assigned], mesh)
    if isinstance(names, Unreachable):
        return names
    found = [topic for topic in assigned if topic.topic_id in names]
    for topic in found:
        topic.topic_id = mesh_topic_id(mesh.mesh_id, names[topic.topic_id])
    return found
