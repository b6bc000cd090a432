"""Topic ids: one for each topic of the mesh, whichever cluster has it.

Theory of operation
1. The id of a topic is a pure function of the mesh's id and the topic's name. So an id is the same on every gateway,
   after every restart and wherever the topic moves. The ids that clusters gave never reach a client.
2. Requests to a cluster name topics; a name is found again among the topics that the clusters have shown. A gateway
   that has just started, or has not seen a new topic yet, asks all clusters once.
3. A topic that is deleted and created again has the same id as before: clients can't see that it is another topic.
"""

import uuid
from collections.abc import Generator, Iterable
from functools import lru_cache
from typing import Any, Final

from services.gateway.requests.memory import TOPIC_NAMES_REMEMBERED, Memory
from services.gateway.requests.plan import Call, Command, MeshView, ask_all
from services.gateway.requests.topic_names import KnownCluster
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataResponse
from services.gateway.wire.schema import NO_UUID

HIGHEST_METADATA: Final = 12
"""The version of Metadata for clusters: the last one without a top-level error, which the gateway has no use for."""
_NAMESPACE: Final = uuid.UUID("6b61666b-612d-5d65-9368-746f70696373")
_LIKE_A_DASH: Final = 0b111110
"""The first six bits that base64 writes as a dash, which command lines take for an option: Kafka gives no such ids."""


@lru_cache(maxsize=TOPIC_NAMES_REMEMBERED)
def mesh_topic_id(mesh_id: str, topic: str) -> bytes:
    """The topic's id for clients; never `NO_UUID`."""
    found = uuid.uuid5(uuid.uuid5(_NAMESPACE, mesh_id), topic).bytes
    return bytes((found[0] ^ 0x80, *found[1:])) if found[0] >> 2 == _LIKE_A_DASH else found


def topic_name(mesh: MeshView, topic_id: bytes) -> str | None:
    """The topic of this id, if a cluster has shown it; makes no call."""
    return known_name(topic_id, mesh.mesh_id, mesh.memory, mesh.clusters.values(), mesh.now)


def known_name(
    topic_id: bytes, mesh_id: str, memory: Memory, clusters: Iterable[KnownCluster], now: float
) -> str | None:
    """As `topic_name`, for callers without a view."""
    names = memory.topic_names
    found = names.get(topic_id, now)
    if found is None and topic_id != NO_UUID:
        for knowledge in clusters:
            _look_through(knowledge, mesh_id, memory, now)
        found = names.get(topic_id, now)
    return found


def _look_through(knowledge: KnownCluster, mesh_id: str, memory: Memory, now: float) -> None:
    """Remembers the ids of the cluster's topics, unless that is done: clients ask for strange ids again and again."""
    names, seen = memory.topic_names, memory.topics_looked_through
    overflowing = len(names) >= names.capacity
    place = (knowledge.name, knowledge.naming)
    if seen.get(place, now) == knowledge.names_edition and not overflowing:
        return
    for name in knowledge.topics:
        names.put(mesh_topic_id(mesh_id, name), name, now)
    seen.put(place, knowledge.names_edition, now)


def topic_names(mesh: MeshView, topic_ids: Iterable[bytes]) -> Generator[Command, Any, dict[bytes, str]]:
    """Names by id; ids that no reachable cluster knows are left out, after the gateway has asked all clusters once."""
    wanted = set(topic_ids)
    found = {topic_id: name for topic_id in wanted if (name := topic_name(mesh, topic_id)) is not None}
    strange = mesh.memory.strange_topic_ids
    asked_for = [each for each in wanted - found.keys() - {NO_UUID} if strange.get(each, mesh.now) is None]
    if not asked_for:
        return found
    yield from look_around(mesh)
    for topic_id in asked_for:
        name = topic_name(mesh, topic_id)
        if name is None:
            strange.put(topic_id, True, mesh.now)
        else:
            found[topic_id] = name
    return found


def look_around(mesh: MeshView) -> Generator[Command, Any, None]:
    """Asks every cluster for all its topics, which are learnt from the answers."""
    calls = [
        Call(
            cluster,
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            highest_version(mesh, cluster, ApiKey.METADATA, HIGHEST_METADATA),
            by_mesh=True,
        )
        for cluster in mesh.table.clusters
        if mesh.clusters[cluster].available
    ]
    yield from ask_all(calls, MetadataResponse, preliminary=True)
