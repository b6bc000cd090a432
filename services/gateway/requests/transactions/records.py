"""Records of a transaction: the topics that they may go to, and the identity of their producer there."""

from collections.abc import Generator, Mapping
from typing import Any

from mesh.transactions import OPEN, Identity
from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.records.seams import is_open, is_stored
from services.gateway.requests.transactions.home import (
    FOREIGN_TOPIC,
    closed_topics,
    foreign_topics,
    tell_refused,
    transaction_home,
)
from services.gateway.requests.transactions.parts import FENCED, forget_part, part_on
from services.gateway.requests.transactions.survey import survey
from services.gateway.wire.batches import BatchHeader, patch_producer
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner import ProduceScan, ProduceTopic

RETRIED = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""The error for a cluster that can't be asked now: every client sends the batch again."""
REPLACED = ErrorCode.INVALID_PRODUCER_EPOCH
"""The error for an identity that is not current at home: Produce has no better error, and brokers use it too."""

MOVED = ErrorCode.TRANSACTION_ABORTABLE
"""For an identity from another home: its producer aborts, and gets one at the new home with the answer (`end`), or asks
for one when it hears of it again. Clients of any age do so; of INVALID_PRODUCER_ID_MAPPING Java producers die here."""

FORGOTTEN = ErrorCode.UNKNOWN_PRODUCER_ID
"""For sequences that the cluster can't take: the producer gets its next epoch, and begins at 0. Of
OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka dies here, and after `MOVED` it goes on with its sequences."""

Closed = Mapping[str, ErrorCode]
"""Topics that the transaction may not write to, with the reason."""


def admit(frame: memoryview, scan: ProduceScan, mesh: MeshView) -> Generator[Command, Any, Closed]:
    """The topics of a transactional Produce that are closed to it. Batches for other topics are patched if needed."""
    transactional_id = scan.transactional_id or ""
    home = transaction_home(transactional_id, mesh)
    foreign = foreign_topics((topic.name for topic in scan.topics), home, mesh)
    if not foreign or home is None:
        return {}
    refused = closed_topics(foreign, home, mesh)
    if refused:
        tell_refused("Produce", transactional_id, home, refused)
    closed = dict.fromkeys(refused, FOREIGN_TOPIC)
    for topic in scan.topics:
        if topic.name in foreign and topic.name not in refused:
            error = yield from _patch(frame, topic, foreign[topic.name], transactional_id, home, mesh)
            if error is not None:
                closed[topic.name] = error
    return closed


def _patch(
    frame: memoryview, topic: ProduceTopic, cluster: str, transactional_id: str, home: str, mesh: MeshView
) -> Generator[Command, Any, ErrorCode | None]:
    """Gives the topic's batches the producer's identity on its cluster; returns the error if there is no identity."""
    for partition in topic.partitions:
        try:
            batch = partition.first_batch(frame)
            starts = list(partition.batch_starts(frame))
        except WireError:  # not a batch: its broker will say so
            continue
        presented = Identity(batch.producer_id, batch.producer_epoch)
        found = yield from part_on(cluster, transactional_id, presented, home, mesh)
        if isinstance(found, ErrorCode):
            if found in FENCED:
                return REPLACED
            return RETRIED if found.retriable else MOVED if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING else found
        for start in starts:
            patch_producer(frame, start, *found)
    return None


def in_parts_left(
    batches: Mapping[tuple[str, int], BatchHeader], transactional_id: str, mesh: MeshView
) -> Generator[Command, Any, set[tuple[str, int]]]:
    """The partitions whose batch the open transaction has already, on the cluster that their topic has left.

    `batches` by topic and partition, as their producer sent them. The answer to such a batch was lost, maybe with the
    gateway that sent it.
    """
    left: dict[str, list[tuple[str, int, str]]] = {}
    for topic, partition in batches:
        route = mesh.table.route(topic)
        if route is not None and route.before is not None and is_open(topic, partition, route, mesh):
            left.setdefault(route.before.cluster, []).append((topic, partition, route.before.upstream_topic))
    asked = [cluster for cluster in left if cluster in mesh.clusters]
    states = yield from survey(transactional_id, asked, mesh, own_names=True)
    found: set[tuple[str, int]] = set()
    for cluster, state in states.items():
        if isinstance(state, Unreachable) or state.transaction_state not in OPEN:
            continue
        parts = {(told.topic, partition) for told in state.topics for partition in told.partitions}
        for topic, partition, name in left[cluster]:
            batch = batches[topic, partition]._replace(
                producer_id=state.producer_id, producer_epoch=state.producer_epoch
            )
            if (name, partition) in parts and is_stored(topic, partition, batch, mesh):
                found.add((topic, partition))
    return found


def bearable(error: int, topic: str, cluster: str, transactional_id: str, mesh: MeshView) -> int:
    """A broker's error as a transactional producer bears it. One whose id has moved is not known at its new home. One
    whose part on another cluster has timed out goes by an old identity there: home says who was replaced.

    A cluster to which a topic comes back remembers the producer's last sequence of the earlier stay. A producer of the
    first protocol has counted on meanwhile, under the same identity.
    """
    if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        route = mesh.table.route(topic)
        return FORGOTTEN if route is not None and route.visit > 1 else error
    if error in FENCED and cluster != transaction_home(transactional_id, mesh):
        forget_part(cluster, transactional_id, mesh)
        return MOVED
    return MOVED if error == ErrorCode.INVALID_PRODUCER_ID_MAPPING else error
