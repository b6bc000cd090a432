"""What one walk costs as Python and compiled, without sockets: `python -m tests.bench.gateway.walks`.

Microseconds of CPU, the best of some rounds in which both take turns; the last column is their ratio.
"""

import time
from collections.abc import Callable

from services.gateway import WHY_NOT_COMPILED
from services.gateway.wire.frames import SIZE_BYTES, encode_request, encode_response
from services.gateway.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from services.gateway.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from services.gateway.wire.primitives import Buffer
from tests.unit.gateway.wire.both_walks import COMPILED, PYTHON, Walks
from tests.unit.gateway.wire.records import batch

ROUNDS, CALLS = 15, 2000

Walk = Callable[[Walks], object]


def produce(topics: int, partitions: int, version: int) -> dict[str, Walk]:
    records = bytes(batch(bytes(200)))
    request = ProduceRequest(
        None,
        -1,
        1000,
        [
            TopicProduceData(
                f"apples-{topic}",
                partition_data=[PartitionProduceData(partition, records) for partition in range(partitions)],
            )
            for topic in range(topics)
        ],
    )
    response = ProduceResponse(
        [
            TopicProduceResponse(
                f"apples-{topic}",
                partition_responses=[PartitionProduceResponse(partition) for partition in range(partitions)],
            )
            for topic in range(topics)
        ]
    )
    asked, told = _view(encode_request(request, version, 1, "bench")), _view(encode_response(response, version, 1))
    body = PYTHON.parse_request_header(asked, SIZE_BYTES, len(asked)).body_offset
    answer = PYTHON.parse_response_header(told, SIZE_BYTES, len(told), 0, version).body_offset
    return {
        "header": lambda walks: walks.parse_request_header(asked, SIZE_BYTES, len(asked)),
        "Produce": lambda walks: walks.scan_produce(asked, version, body, len(asked)),
        "its answer": lambda walks: walks.produce_response_is_clean(told, version, answer, len(told)),
    }


def fetch(topics: int, partitions: int, version: int) -> dict[str, Walk]:
    records = bytes(batch(bytes(200)))
    request = FetchRequest(
        topics=[
            FetchTopic(f"apples-{topic}", partitions=[FetchPartition(partition) for partition in range(partitions)])
            for topic in range(topics)
        ]
    )
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                f"apples-{topic}",
                partitions=[PartitionData(partition, records=records) for partition in range(partitions)],
            )
            for topic in range(topics)
        ]
    )
    asked, told = _view(encode_request(request, version, 1, "bench")), _view(encode_response(response, version, 1))
    body = PYTHON.parse_request_header(asked, SIZE_BYTES, len(asked)).body_offset
    answer = PYTHON.parse_response_header(told, SIZE_BYTES, len(told), 1, version).body_offset
    return {
        "Fetch": lambda walks: walks.scan_fetch_request(asked, version, body, len(asked)),
        "its answer": lambda walks: walks.scan_fetch_response(told, version, answer, len(told)),
    }


def _view(frame: Buffer) -> memoryview:
    return memoryview(bytearray(frame))


def measure(walk: Walk) -> tuple[float, float]:
    best = {PYTHON: float("inf"), COMPILED: float("inf")}
    for _ in range(ROUNDS):
        for walks in best:
            began = time.process_time()
            for _ in range(CALLS):
                walk(walks)
            best[walks] = min(best[walks], (time.process_time() - began) / CALLS * 1e6)
    return best[PYTHON], best[COMPILED]


def main() -> None:
    if WHY_NOT_COMPILED is not None:
        raise SystemExit(f"nothing to compare: {WHY_NOT_COMPILED}")
    print(f"{'topics x partitions':<21}{'version':>7}  {'walk':<12}{'Python':>8}{'compiled':>10}")
    for topics, partitions in ((1, 1), (2, 10)):
        for versions, walks_of in (((7, 9), produce), ((11, 12), fetch)):
            for version in versions:
                for name, walk in walks_of(topics, partitions, version).items():
                    python, compiled = measure(walk)
                    print(
                        f"{f'{topics} x {partitions}':<21}{version:>7}  {name:<12}{python:>8.2f}{compiled:>10.2f}"
                        f"{python / compiled:>7.1f}"
                    )


if __name__ == "__main__":
    main()
