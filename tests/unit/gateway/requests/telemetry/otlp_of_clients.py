"""OTLP as Kafka clients push it: metrics in a line each."""

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource


def gauge(name: str, value: float, **attributes: str) -> Metric:
    return Metric(name=name, gauge=Gauge(data_points=[_point(value, attributes)]))


def counter(name: str, value: float, *, delta: bool = True, **attributes: str) -> Metric:
    kind = AGGREGATION_TEMPORALITY_DELTA if delta else AGGREGATION_TEMPORALITY_CUMULATIVE
    points = [_point(value, attributes)]
    return Metric(name=name, sum=Sum(data_points=points, aggregation_temporality=kind, is_monotonic=True))


def histogram(name: str, count: int, total: float) -> Metric:
    points = [HistogramDataPoint(count=count, sum=total)]
    kind = AGGREGATION_TEMPORALITY_CUMULATIVE
    return Metric(name=name, histogram=Histogram(data_points=points, aggregation_temporality=kind))


def pushed(*metrics: Metric, **resource: str) -> bytes:
    scope = ScopeMetrics(metrics=metrics)
    of_all = Resource(attributes=_attributes(resource))
    return MetricsData(resource_metrics=[ResourceMetrics(resource=of_all, scope_metrics=[scope])]).SerializeToString()


def _point(value: float, attributes: dict[str, str]) -> NumberDataPoint:
    number = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    return NumberDataPoint(attributes=_attributes(attributes), **number)


def _attributes(said: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in said.items()]
