"""WriteTxnMarkers: an administrator ends a transaction that hangs, at the leader of each of its partitions.

Only `Admin.abortTransaction` comes here: coordinators send their markers on their own cluster.

A transaction over several clusters that is decided must not be aborted on one of them. The gateway reads the homes'
logs first, and refuses such an abort with INVALID_TXN_STATE. While a log can't be read, the partition's answer is
COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import structlog

from mesh.transactions import Identity
from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Plan, Request
from services.gateway.requests.transactions.home import takes_part
from services.gateway.requests.transactions.log_reading import read_logs
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = structlog.get_logger(__name__)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(WriteTxnMarkersRequest)
    results = []
    for marker in message.markers:
        result = yield from _write(marker, request.version, mesh)
        results.append(result)
    return WriteTxnMarkersResponse(markers=results)


def _write(marker: WritableTxnMarker, version: int, mesh: MeshView) -> Generator[Command, Any, WritableTxnMarkerResult]:
    refused = {} if marker.transaction_result else (yield from _refused(marker, mesh))

    def question(place: Place, parts: list[Wanted[None]]) -> Call:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for w in parts:
            topics.setdefault(w.topic, WritableTxnMarkerTopic(w.topic)).partition_indexes.append(w.partition)
        part = WriteTxnMarkersRequest([replace(marker, topics=list(topics.values()))])
        return Call(place.cluster, part, version, Broker(place.broker_id), Lane.CLIENT)

    wanted = [
        Wanted(topic.name, index, None)
        for topic in marker.topics
        for index in topic.partition_indexes
        if topic.name not in refused
    ]
    results = yield from ask_leaders(mesh, wanted, question, WriteTxnMarkersResponse, _results_of, _failed)
    results |= {
        (topic.name, index): _failed(index, refused[topic.name])
        for topic in marker.topics
        if topic.name in refused
        for index in topic.partition_indexes
    }
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(topic.name, [results[topic.name, index] for index in topic.partition_indexes])
            for topic in marker.topics
        ],
    )


def _refused(marker: WritableTxnMarker, mesh: MeshView) -> Generator[Command, Any, dict[str, ErrorCode]]:
    """The topics on which this producer's transaction is decided, or may be, with the error."""
    clusters = {topic.name: mesh.table.cluster_of(topic.name) for topic in marker.topics}
    if len(mesh.table.clusters) == 1:
        return {}
    logs = yield from read_logs([home for home in mesh.table.clusters if takes_part(home, mesh)], mesh)
    if any(found is None for found in logs.values()):
        return dict.fromkeys(clusters, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer = Identity(marker.producer_id, marker.producer_epoch)
    decided = {
        cluster: decision
        for home, found in logs.items()
        if found is not None
        for decision in found.decisions
        for cluster, identity in (
            (home, decision.at_home),
            *((cluster, part.identity) for cluster, part in decision.parts.items()),
        )
        if identity == producer
    }
    for topic, cluster in clusters.items():
        if cluster in decided:
            log.warning(
                "abort of a partition refused: its transaction is committed, and waits for this cluster",
                transactional_id=decided[cluster].transactional_id,
                cluster=cluster,
                topic=topic,
            )
    return {topic: ErrorCode.INVALID_TXN_STATE for topic, cluster in clusters.items() if cluster in decided}


def _results_of(answer: WriteTxnMarkersResponse) -> Iterator[tuple[str, WritableTxnMarkerPartitionResult]]:
    return ((topic.name, part) for marker in answer.markers for topic in marker.topics for part in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition, error)
