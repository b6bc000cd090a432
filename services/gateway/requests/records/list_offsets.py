"""ListOffsets: offsets by time or end, from the leaders. Times and isolation mean the same as on the broker.

For `read_committed` readers of several clusters, an end is not behind the offset from which on records are held back
(`transactions.holding`), and no time has an offset behind it. The parts of a stitched log are asked one after another
(`stitched_ends`).
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mesh.transactions import TRANSACTIONS_TOPIC
from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Plan, Request
from services.gateway.requests.records.stitched_ends import OffsetSearch
from services.gateway.requests.transactions.holding import concerns, holds_now, place_of
from services.gateway.requests.transactions.stable_offsets import LATEST
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

NO_EPOCH = -1
NO_OFFSET = NO_TIME = -1
TIMEOUT_S = 35.0
"""To look a time up in a tiered log is slow; clients wait 30 s by default."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListOffsetsRequest)
    wanted = [Wanted(topic.name, p.partition_index, p) for topic in message.topics for p in topic.partitions]
    searches = {(w.topic, w.partition): OffsetSearch.of(w.topic, w.partition, w.item.timestamp, mesh) for w in wanted}

    def question(place: Place, parts: list[Wanted[ListOffsetsPartition]]) -> Call:
        return _call(message, request.version, place, parts)

    results: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
    left = wanted
    while left:
        turn, later = _in_turn(left, searches)
        told = yield from ask_leaders(mesh, turn.values(), question, ListOffsetsResponse, _results_of, _failed)
        results |= {slot: told[w.topic, w.partition] for slot, w in turn.items()}
        goes_on = {slot for slot in turn if not searches[slot].take(results[slot])}
        left = [w for w in left if (w.topic, w.partition) in goes_on] + later
    for result in results.values():
        result.leader_epoch = NO_EPOCH
    if concerns(mesh.table, message.isolation_level) and any(w.item.timestamp >= LATEST for w in wanted):
        yield from _hold_back(wanted, results, searches, mesh)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, [results[topic.name, p.partition_index] for p in topic.partitions])
            for topic in message.topics
        ]
    )


def _in_turn(
    left: Iterable[Wanted[ListOffsetsPartition]], searches: Mapping[tuple[str, int], OffsetSearch]
) -> tuple[dict[tuple[str, int], Wanted[ListOffsetsPartition]], list[Wanted[ListOffsetsPartition]]]:
    """The partitions as the next questions name them, and those that wait: a question names a log once."""
    turn: dict[tuple[str, int], Wanted[ListOffsetsPartition]] = {}
    later: list[Wanted[ListOffsetsPartition]] = []
    named: set[tuple[str, int]] = set()
    for w in left:
        search = searches[w.topic, w.partition]
        asked = search.asked_as(w.topic), w.partition
        if asked in named:
            later.append(w)
        else:
            named.add(asked)
            turn[w.topic, w.partition] = replace(w, topic=asked[0], cluster=search.cluster)
    return turn, later


def _hold_back(
    wanted: list[Wanted[ListOffsetsPartition]],
    results: Mapping[tuple[str, int], ListOffsetsPartitionResponse],
    searches: Mapping[tuple[str, int], OffsetSearch],
    mesh: MeshView,
) -> Generator[Command, Any, None]:
    """Ends and times alone: the other special timestamps are about the beginning of a log, and about its records."""
    if all(known.partition_count(TRANSACTIONS_TOPIC) is None for known in mesh.clusters.values()):
        return  # a sweep knows of the topic within seconds after its creation
    holds = yield from holds_now(mesh)
    for w in wanted:
        result = results[w.topic, w.partition]
        part = searches[w.topic, w.partition].asked
        place = place_of(w.topic, w.partition, mesh) if part is None else part.place(w.partition)
        stable = None if place is None else holds.stable(place)
        if stable is not None and part is not None:
            stable = part.shown(stable)
        if stable is None or result.error_code or result.offset < stable:
            continue
        if w.item.timestamp == LATEST:
            result.offset = max(0, stable)
        elif w.item.timestamp > LATEST:
            result.offset, result.timestamp = NO_OFFSET, NO_TIME


def _call(message: ListOffsetsRequest, version: int, place: Place, parts: list[Wanted[ListOffsetsPartition]]) -> Call:
    topics: dict[str, ListOffsetsTopic] = {}
    for w in parts:
        w.item.current_leader_epoch = NO_EPOCH
        topics.setdefault(w.topic, ListOffsetsTopic(w.topic)).partitions.append(w.item)
    part = ListOffsetsRequest(
        message.replica_id, message.isolation_level, list(topics.values()), timeout_ms=message.timeout_ms
    )
    return Call(place.cluster, part, version, Broker(place.broker_id), Lane.CLIENT, timeout_s=TIMEOUT_S)


def _results_of(answer: ListOffsetsResponse) -> Iterator[tuple[str, ListOffsetsPartitionResponse]]:
    return ((topic.name, partition) for topic in answer.topics for partition in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error)
