"""librdkafka's own statistics as metrics, added up over the clients of one kind.

Each client reports a JSON document every `statistics_interval_ms`, on its own thread; this module names the members
that become metrics. Source: https://github.com/confluentinc/librdkafka, STATISTICS.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import orjson
from prometheus_client import Counter, Gauge

from mesh.exposition.histograms import Histogram
from mesh.lost_brokers import BrokerWatch

_PREFIX = "kafka_mesh_sidecar_client_"
_LEVELS = {
    "msg_cnt": Gauge(f"{_PREFIX}queued_messages", "Messages in queues of producers.", ["client"]),
    "msg_size": Gauge(f"{_PREFIX}queued_message_bytes", "Bytes of messages in queues of producers.", ["client"]),
    "replyq": Gauge(f"{_PREFIX}waiting_events", "Events that wait to be served by a poll.", ["client"]),
}
_TOTALS = {
    "tx": Counter(f"{_PREFIX}requests_total", "Requests sent to brokers.", ["client"]),
    "rx": Counter(f"{_PREFIX}responses_total", "Responses from brokers.", ["client"]),
    "tx_bytes": Counter(f"{_PREFIX}sent_bytes_total", "Bytes sent to brokers.", ["client"]),
    "rx_bytes": Counter(f"{_PREFIX}received_bytes_total", "Bytes from brokers.", ["client"]),
    "txmsgs": Counter(f"{_PREFIX}sent_messages_total", "Messages sent to brokers.", ["client"]),
    "rxmsgs": Counter(f"{_PREFIX}received_messages_total", "Messages received from brokers.", ["client"]),
}
_round_trip = Histogram(
    f"{_PREFIX}broker_round_trip_seconds",
    "Mean time from a request to its response, of each broker in each report.",
    ["client"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)


class _Reports:
    """The last report of one client, so that only the difference is added."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.watch = BrokerWatch()
        _clients.add(self)
        self._last: dict[str, float] = {}
        weakref.finalize(self, _forget, kind, self._last)

    def __call__(self, document: str) -> None:
        found = orjson.loads(document)
        self.watch.heed(found)
        for name, level in _LEVELS.items():
            level.labels(self.kind).inc(found.get(name, 0) - self._last.get(name, 0))
            self._last[name] = found.get(name, 0)
        for name, total in _TOTALS.items():
            total.labels(self.kind).inc(max(found.get(name, 0) - self._last.get(name, 0), 0))
            self._last[name] = found.get(name, 0)
        for broker in found.get("brokers", {}).values():
            if trips := broker.get("rtt", {}).get("cnt"):
                _round_trip.labels(self.kind).observe(broker["rtt"]["sum"] / trips / 1_000_000)


_clients: weakref.WeakSet[_Reports] = weakref.WeakSet()


def broker_fault() -> str | None:
    """The clients of this process that have lost all brokers for good; None if there is none."""
    lost = sorted(client.kind for client in list(_clients) if client.watch.is_lost)
    if not lost:
        return None
    return f"these Kafka clients have lost all brokers for good: {', '.join(lost)}; restart this sidecar"


def client_reports(kind: str) -> Callable[[str], None]:
    """The `stats_cb` of one new client of this kind (producer, consumer): the client calls it with its reports."""
    return _Reports(kind)


def _forget(kind: str, last: dict[str, float]) -> None:
    """A client that is gone has nothing in its queues."""
    for name, level in _LEVELS.items():
        level.labels(kind).dec(last.get(name, 0))
