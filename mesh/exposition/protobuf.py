"""Prometheus' protobuf format, which alone carries native histograms: of families as prometheus_client collects them.

A scraper that asks for this format gets each histogram with classic buckets and native ones, and takes what it can use.
"""

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO

from google.protobuf.proto import serialize_length_prefixed
from prometheus_client import Metric
from prometheus_client.samples import Exemplar, Sample

from mesh.rpc.prometheus import metrics_pb2 as pb

_OF_PARTS = ("counter", "histogram", "summary")
"""Types whose samples are parts of one metric; `le` and `quantile` tell the parts apart."""
_PLACES = ("le", "quantile")


def written(families: Iterable[Metric]) -> bytes:
    """The families, each with its length in front of it."""
    out = BytesIO()
    for family in families:
        for message in _messages(family):
            serialize_length_prefixed(message, out)
    return out.getvalue()


def _messages(family: Metric) -> Iterator[pb.MetricFamily]:
    """One message; several for a family of series with different names and without a type of their own."""
    kind, write = _FORMS.get(family.type, (pb.UNTYPED, _write_untyped))
    is_one = family.type in _OF_PARTS
    found: dict[str, pb.MetricFamily] = {}
    series: dict[tuple[str, ...], pb.Metric] = {}
    for sample in family.samples:
        name = family.name + ("_total" if family.type == "counter" else "") if is_one else sample.name
        message = found.get(name)
        if message is None:
            message = found[name] = pb.MetricFamily(name=name, help=family.documentation, type=kind)
        labels = sorted(label for label in sample.labels.items() if not is_one or label[0] not in _PLACES)
        key = name, *(part for label in labels for part in label)
        metric = series.get(key)
        if metric is None:
            metric = series[key] = message.metric.add()
            for label, value in labels:
                metric.label.add(name=label, value=value)
        write(metric, sample, sample.name.removeprefix(family.name))
    yield from found.values()


def _write_gauge(metric: pb.Metric, sample: Sample, part: str) -> None:
    metric.gauge.value = sample.value


def _write_untyped(metric: pb.Metric, sample: Sample, part: str) -> None:
    metric.untyped.value = sample.value


def _write_counter(metric: pb.Metric, sample: Sample, part: str) -> None:
    if part == "_created":
        metric.counter.created_timestamp.FromNanoseconds(int(sample.value * 1e9))
        return
    metric.counter.value = sample.value
    if sample.exemplar:
        _write_exemplar(metric.counter.exemplar, sample.exemplar)


def _write_summary(metric: pb.Metric, sample: Sample, part: str) -> None:
    match part:
        case "_count":
            metric.summary.sample_count = int(sample.value)
        case "_sum":
            metric.summary.sample_sum = sample.value
        case "_created":
            metric.summary.created_timestamp.FromNanoseconds(int(sample.value * 1e9))
        case _:
            metric.summary.quantile.add(quantile=float(sample.labels["quantile"]), value=sample.value)


def _write_histogram(metric: pb.Metric, sample: Sample, part: str) -> None:
    into, native = metric.histogram, sample.native_histogram
    if native is not None:
        into.sample_count, into.sample_sum = int(native.count_value), native.sum_value
        into.schema, into.zero_threshold, into.zero_count = native.schema, native.zero_threshold, int(native.zero_count)
        for span in native.pos_spans or ():
            into.positive_span.add(offset=span.offset, length=span.length)
        into.positive_delta.extend(native.pos_deltas or ())
        into.exemplars.extend(bucket.exemplar for bucket in into.bucket if bucket.HasField("exemplar"))
    elif part == "_bucket":
        bucket = into.bucket.add(upper_bound=float(sample.labels["le"]), cumulative_count=int(sample.value))
        if sample.exemplar:
            _write_exemplar(bucket.exemplar, sample.exemplar)
    elif part == "_count":
        into.sample_count = int(sample.value)
    elif part == "_sum":
        into.sample_sum = sample.value
    elif part == "_created":
        into.created_timestamp.FromNanoseconds(int(sample.value * 1e9))


def _write_exemplar(into: pb.Exemplar, exemplar: Exemplar) -> None:
    for name, value in exemplar.labels.items():
        into.label.add(name=name, value=value)
    into.value = exemplar.value
    if exemplar.timestamp is not None:
        into.timestamp.FromNanoseconds(int(float(exemplar.timestamp) * 1e9))


_FORMS: dict[str, tuple[pb.MetricType.ValueType, Callable[[pb.Metric, Sample, str], None]]] = {
    "gauge": (pb.GAUGE, _write_gauge),
    "info": (pb.GAUGE, _write_gauge),
    "stateset": (pb.GAUGE, _write_gauge),
    "counter": (pb.COUNTER, _write_counter),
    "summary": (pb.SUMMARY, _write_summary),
    "histogram": (pb.HISTOGRAM, _write_histogram),
}
"""Families of other types have no type."""
