"""The mean size of records, from a small sample."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing

from services.pipeline.copying.offsets import Held, Stretch
from services.pipeline.copying.origins import Archive, RecordReader
from services.pipeline.copying.routes import Route
from services.pipeline.kafka.positions import Place, Span
from services.pipeline.kafka.reader import SpanReader

SAMPLE_RECORDS = 500
"""The sample is the last records of the largest partition."""


def mean_size(
    route: Route,
    stretches: Mapping[Place, Stretch],
    held: Mapping[Place, Held],
    properties: Mapping[str, str],
    archive: Archive | None,
    timeout_s: float,
) -> float:
    """Mean bytes of key and value of a route's record; 0 if there is no record. `properties`: of the source cluster."""
    largest = max(stretches, key=lambda place: stretches[place].end - stretches[place].start, default=None)
    if largest is None:
        return 0.0
    each, there, partition = stretches[largest], held[largest], largest[1]
    first = max(each.start, each.end - SAMPLE_RECORDS)
    opened: AbstractContextManager[RecordReader]
    if archive is not None and there.archived is not None and first < there.log.start:
        opened = archive.origin.reader()
        span = Span(route.topic, partition, max(first, there.archived.start), min(each.end, there.archived.end))
    else:
        opened = closing(SpanReader(properties, timeout_s))
        span = Span(route.source_topic, partition, max(first, there.log.start), each.end)
    sizes: list[int] = []
    deadline = time.monotonic() + timeout_s
    with opened as reader:
        for batch in reader.read([span]):
            if batch is not None:
                sizes += [len(record.key() or b"") + len(record.value() or b"") for record in batch.records]
            if time.monotonic() > deadline:
                break
    return sum(sizes) / len(sizes) if sizes else 0.0
