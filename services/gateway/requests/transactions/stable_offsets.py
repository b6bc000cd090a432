"""The last stable offsets of a transaction's partitions, asked right before its commit is decided.

The transaction is open then, so the last stable offset of each partition is not behind the transaction's first record
there. The leaders that do not answer at once are asked once more; beyond that the offset stays unknown.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final

import structlog

from mesh.transactions import UNKNOWN_OFFSET, LogPlace
from services.gateway.requests.placement import LEADER_ERRORS, Place
from services.gateway.requests.plan import Broker, Call, Command, MeshView, Unreachable, ask_all, refresh
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

VERSION: Final = 5
"""The last version before flexible messages; it has all that is asked here."""
LATEST: Final = -1
CONSUMER: Final = -1
"""The replica id of a client: a leader reports the high watermark, or the last stable offset, as the latest offset."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ATTEMPTS: Final = 2
TIMEOUT_S: Final = 1.0
"""Short, because the parts of the transaction run out of time meanwhile (`survey.MARGIN_MS`)."""
MOST_PLACES: Final = 20_000
"""Most partitions that one decision names: a record of about 400 KB. Brokers take 1 MB."""

log = structlog.get_logger(__name__)


def stable_offsets(
    states: Mapping[str, TransactionState], mesh: MeshView
) -> Generator[Command, Any, dict[LogPlace, int]]:
    """By partition of the transaction, as these clusters describe it with their own names of topics."""
    places = [
        LogPlace(cluster, topic.topic, partition)
        for cluster, state in states.items()
        for topic in state.topics
        if not is_internal(topic.topic)
        for partition in topic.partitions
    ]
    if len(places) > MOST_PLACES:
        log.warning(
            "a transaction has too many partitions: readers may see it on one cluster before another",
            partitions=len(places),
            most=MOST_PLACES,
        )
        return {}
    found = dict.fromkeys(places, UNKNOWN_OFFSET)
    missing = set(places)
    for _ in range(ATTEMPTS):
        yield from _find_leaders(missing, mesh)
        again = yield from _ask(missing, found, mesh)
        if not again:
            break
        missing = again
    return found


def _find_leaders(places: Iterable[LogPlace], mesh: MeshView) -> Generator[Command, Any, None]:
    lost: dict[str, set[str]] = {}
    for cluster, topic, partition in places:
        if mesh.clusters[cluster].by_own_names.leader(topic, partition) is None:
            lost.setdefault(cluster, set()).add(topic)
    for cluster, topics in lost.items():
        yield from refresh(cluster, sorted(topics), own_names=True)


def _ask(
    places: Iterable[LogPlace], found: dict[LogPlace, int], mesh: MeshView
) -> Generator[Command, Any, set[LogPlace]]:
    """Asks all leaders at once. Returns the partitions that have another leader by now."""
    by_leader: dict[Place, list[LogPlace]] = {}
    for place in places:
        leader = mesh.clusters[place.cluster].by_own_names.leader(place.topic, place.partition)
        if leader is not None:
            by_leader.setdefault(Place(place.cluster, leader), []).append(place)
    calls = [question(at, led, READ_COMMITTED, mesh) for at, led in by_leader.items()]
    outcomes = yield from ask_all(calls, ListOffsetsResponse, preliminary=True)
    moved: set[LogPlace] = set()
    for at, outcome in zip(by_leader, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            continue
        for topic in outcome.topics:
            for part in topic.partitions:
                place = LogPlace(at.cluster, topic.name, part.partition_index)
                if part.error_code in LEADER_ERRORS:
                    mesh.clusters[at.cluster].by_own_names.doubt((topic.name,))
                    moved.add(place)
                elif not part.error_code:
                    found[place] = part.offset
    return moved


def question(
    at: Place,
    places: Iterable[LogPlace],
    isolation_level: int,
    mesh: MeshView,
    *,
    replica_id: int = CONSUMER,
    own_names: bool = True,
    timeout_s: float = TIMEOUT_S,
) -> Call:
    """The ends of these partitions, which one broker leads."""
    topics: dict[str, ListOffsetsTopic] = {}
    for _, name, partition in places:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(partition, timestamp=LATEST))
    message = ListOffsetsRequest(replica_id, isolation_level, list(topics.values()))
    version = highest_version(mesh, at.cluster, ApiKey.LIST_OFFSETS, VERSION)
    return Call(
        at.cluster, message, version, Broker(at.broker_id), timeout_s=timeout_s, by_mesh=True, own_names=own_names
    )
