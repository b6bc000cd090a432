"""DescribeProducers: the producers that the leader of each partition remembers, on its topic's owner.

Ids are those in the log: minted by the gateway for producers that came through the mesh, the cluster's own for others.
The gateway asks the leader of a stitched log's present part.
"""

from collections.abc import Iterator

from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request
from services.gateway.requests.records.stitched import stretches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
    TopicResponse,
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeProducersRequest)

    def question(place: Place, parts: list[Wanted[None]]) -> Call:
        topics: dict[str, TopicRequest] = {}
        for w in parts:
            topics.setdefault(w.topic, TopicRequest(w.topic)).partition_indexes.append(w.partition)
        part = DescribeProducersRequest(list(topics.values()))
        return Call(place.cluster, part, request.version, Broker(place.broker_id), Lane.CLIENT)

    wanted = [Wanted(topic.name, index, None) for topic in message.topics for index in topic.partition_indexes]
    results = yield from ask_leaders(mesh, wanted, question, DescribeProducersResponse, _results_of, _failed)
    for (topic, partition), result in results.items():
        parts = stretches(topic, partition, mesh)
        for producer in result.active_producers if parts else ():
            producer.current_txn_start_offset = parts[-1].shown(producer.current_txn_start_offset)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(topic.name, [results[topic.name, index] for index in topic.partition_indexes])
            for topic in message.topics
        ]
    )


def _results_of(answer: DescribeProducersResponse) -> Iterator[tuple[str, PartitionResponse]]:
    return ((topic.name, partition) for topic in answer.topics for partition in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition, error)
