"""The metrics by topic and by group. Names are bounded: beyond `MAX_NAMES` of a kind, the rest is "other"."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mesh.exposition.histograms import Histogram

MAX_NAMES = 500
OTHER = "other"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_produced_records = Counter(
    "kafka_mesh_sidecar_topic_produced_records_total",
    "Records given to Kafka, by topic and outcome.",
    ["topic", "outcome"],
)
_produced_bytes = Counter("kafka_mesh_sidecar_topic_produced_bytes_total", "Keys and values given to Kafka.", ["topic"])
_delivery_seconds = Histogram(
    "kafka_mesh_sidecar_topic_delivery_duration_seconds",
    "From a batch's admission to its last acknowledgement.",
    ["topic"],
    buckets=_SECONDS,
)
_consumed_records = Counter(
    "kafka_mesh_sidecar_topic_consumed_records_total", "Records handed to the backend.", ["topic", "group"]
)
_consumed_bytes = Counter(
    "kafka_mesh_sidecar_topic_consumed_bytes_total", "Keys and values handed to the backend.", ["topic", "group"]
)
_unnamed = Counter(
    "kafka_mesh_sidecar_unnamed_uses_total",
    "Times that a topic or a group had no room and counted as `other`.",
    ["kind"],
)


class BoundedNames:
    """The first names get a place of their own; later ones share one, so that metrics stay bounded."""

    def __init__(self, kind: str, bound: int = MAX_NAMES) -> None:
        self._unnamed = _unnamed.labels(kind)
        self._bound = bound
        self._known: dict[str, str] = {}

    def label(self, name: str) -> str:
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= self._bound:
                self._unnamed.inc()
                return OTHER
            found = self._known[name] = name
        return found


_topics = BoundedNames("topic")
_groups = BoundedNames("group")


def produced(topic: str, *, delivered: int, failed: int, size: int, seconds: float) -> None:
    """A batch for a topic is done."""
    label = _topics.label(topic)
    if delivered:
        _produced_records.labels(label, "delivered").inc(delivered)
    if failed:
        _produced_records.labels(label, "failed").inc(failed)
    _produced_bytes.labels(label).inc(size)
    _delivery_seconds.labels(label).observe(seconds)


def consumed(topic: str, group: str, *, records: int, size: int) -> None:
    """Records of a topic are in an answer."""
    labels = (_topics.label(topic), _groups.label(group))
    _consumed_records.labels(*labels).inc(records)
    _consumed_bytes.labels(*labels).inc(size)


LagSource = Callable[[], Iterable[tuple[str, str, int]]]
"""Group, topic and lag of each partition that an instance has; a lag that is not known is negative."""


class GroupLag(Collector):
    """The lag of groups in this sidecar. Each scrape asks the sources of the lag."""

    def __init__(self) -> None:
        self._sources: list[LagSource] = []

    def add(self, source: LagSource) -> None:
        self._sources.append(source)

    def remove(self, source: LagSource) -> None:
        """Removes a source. A source that was never added is ignored."""
        if source in self._sources:
            self._sources.remove(source)

    def collect(self) -> Iterable[Metric]:
        sums: dict[tuple[str, str], int] = {}
        for group, topic, lag in (one for source in tuple(self._sources) for one in source()):
            if lag >= 0:
                labels = (_groups.label(group), _topics.label(topic))
                sums[labels] = sums.get(labels, 0) + lag
        family = GaugeMetricFamily(
            "kafka_mesh_sidecar_group_lag_records",
            "Records between the position and the end, over the partitions that instances here have.",
            labels=["group", "topic"],
        )
        for labels, lag in sums.items():
            family.add_metric(labels, lag)
        yield family


group_lag = GroupLag()
REGISTRY.register(group_lag)
