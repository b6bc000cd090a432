"""The metrics that a client sends of itself: OTLP, read into points. Hostile bytes cost no more than honest ones."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
)

MAX_POINTS: Final = 2000
"""Points of one push; a Java producer with ten brokers sends about 400."""
MAX_ATTRIBUTES: Final = 8
MAX_TEXT: Final = 120
"""Characters of a name or value; longer ones are cut."""


class OtlpError(ValueError):
    """The bytes are not OTLP."""


class Point(NamedTuple):
    """One number."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    """Attributes of the resource and the point, sorted by name."""
    value: float
    delta: bool
    """The value counts the events since the last push."""


def points(payload: bytes) -> Iterator[Point]:
    """At most `MAX_POINTS` points. Raises OtlpError before the first point."""
    data = MetricsData()
    try:
        data.ParseFromString(payload)
    except DecodeError as error:
        raise OtlpError(f"not OTLP: {error}") from None
    return _first(MAX_POINTS, _points(data))


def _first(count: int, found: Iterator[Point]) -> Iterator[Point]:
    for _, point in zip(range(count), found, strict=False):
        yield point


def _points(data: MetricsData) -> Iterator[Point]:
    for resource in data.resource_metrics:
        of_all = list(resource.resource.attributes)[:MAX_ATTRIBUTES]
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _of_metric(metric, of_all)


def _of_metric(metric: Metric, of_all: list[KeyValue]) -> Iterator[Point]:
    name = metric.name[:MAX_TEXT]
    match metric.WhichOneof("data"):
        case "gauge":
            yield from _numbers(name, metric.gauge.data_points, of_all, False)
        case "sum":
            delta = metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
            yield from _numbers(name, metric.sum.data_points, of_all, delta)
        case "histogram":
            delta = metric.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
            yield from _totals(name, metric.histogram.data_points, of_all, delta)


def _numbers(name: str, found: Iterable[NumberDataPoint], of_all: list[KeyValue], delta: bool) -> Iterator[Point]:
    for point in found:
        value = float(point.as_int) if point.WhichOneof("value") == "as_int" else point.as_double
        yield Point(name, _attributes(of_all, point.attributes), value, delta)


def _totals(name: str, found: Iterable[HistogramDataPoint], of_all: list[KeyValue], delta: bool) -> Iterator[Point]:
    """Count and sum of a histogram: no Kafka client sends one today, and its buckets would be a series each."""
    for point in found:
        attributes = _attributes(of_all, point.attributes)
        yield Point(f"{name}.count", attributes, float(point.count), delta)
        yield Point(f"{name}.sum", attributes, point.sum, delta)


def _attributes(of_all: list[KeyValue], own: Iterable[KeyValue]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for attribute in (*of_all, *own):
        if len(found) == MAX_ATTRIBUTES:
            break
        found[attribute.key[:MAX_TEXT]] = _text(attribute.value)
    return tuple(sorted(found.items()))


def _text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value[:MAX_TEXT]
    plain = kind in ("bool_value", "int_value", "double_value")
    return str(getattr(value, kind)) if kind is not None and plain else ""
