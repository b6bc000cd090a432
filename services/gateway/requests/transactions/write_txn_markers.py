"""WriteTxnMarkers: an administrator ends a transaction that hangs, at the leader of each of its partitions.

Only `Admin.abortTransaction` comes here: coordinators send their markers on their own cluster.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Plan, Request
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


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(WriteTxnMarkersRequest)
    results = []
    for marker in message.markers:
        result = yield from _write(marker, request.version, mesh)
        results.append(result)
    return WriteTxnMarkersResponse(markers=results)


def _write(marker: WritableTxnMarker, version: int, mesh: MeshView) -> Generator[Command, Any, WritableTxnMarkerResult]:
    def question(place: Place, parts: list[Wanted[None]]) -> Call:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for w in parts:
            topics.setdefault(w.topic, WritableTxnMarkerTopic(w.topic)).partition_indexes.append(w.partition)
        part = WriteTxnMarkersRequest([replace(marker, topics=list(topics.values()))])
        return Call(place.cluster, part, version, Broker(place.broker_id), Lane.CLIENT)

    wanted = [Wanted(topic.name, index, None) for topic in marker.topics for index in topic.partition_indexes]
    results = yield from ask_leaders(mesh, wanted, question, WriteTxnMarkersResponse, _results_of, _failed)
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(topic.name, [results[topic.name, index] for index in topic.partition_indexes])
            for topic in marker.topics
        ],
    )


def _results_of(answer: WriteTxnMarkersResponse) -> Iterator[tuple[str, WritableTxnMarkerPartitionResult]]:
    return ((topic.name, part) for marker in answer.markers for topic in marker.topics for part in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition, error)
