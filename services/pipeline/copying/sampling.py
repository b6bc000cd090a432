"""How large records are, told by a few of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from services.pipeline.copying.kafka_reading import KafkaReader
from services.pipeline.copying.planning import Stretch
from services.pipeline.copying.reading import Place
from services.pipeline.copying.routes import Route
from services.pipeline.positions import Span

SAMPLE_RECORDS = 500
"""The last of the partition that has most."""


def mean_size(
    route: Route, stretches: Mapping[Place, Stretch], properties: Mapping[str, str], timeout_s: float
) -> float:
    """Bytes of a record of the route, key and value; 0 where there is none to look at."""
    largest = max(stretches, key=lambda place: stretches[place].end - stretches[place].start, default=None)
    if largest is None:
        return 0.0
    each = stretches[largest]
    first = max(each.start, each.end - SAMPLE_RECORDS)
    reader = KafkaReader(properties, timeout_s)
    sizes: list[int] = []
    deadline = time.monotonic() + timeout_s
    try:
        for batch in reader.read([Span(route.source_topic, largest[1], first, each.end)]):
            if batch is not None:
                sizes += [len(record.key() or b"") + len(record.value() or b"") for record in batch.records]
            if time.monotonic() > deadline:
                break
    finally:
        reader.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
