"""The metrics of traffic and of its reports, by the service that reports."""

from collections import Counter as Sums
from typing import Final

from prometheus_client import Counter, Gauge

from mesh.traffic.counting import Interval

MOST_TOPICS: Final = 200
"""Topics that have series of their own, from the first on."""
OTHER: Final = "other"


class TrafficMetrics:
    """The metrics of one process: made once."""

    def __init__(self, service: str) -> None:
        prefix = f"kafka_mesh_{service}_traffic_"
        self.written = Counter(f"{prefix}reports_total", "Reports of traffic that the home cluster has taken.")
        self.lost = Counter(
            f"{prefix}lost_reports_total", "Reports that made way for younger ones, or were left at the end."
        )
        self.waiting_bytes = Gauge(f"{prefix}waiting_bytes", "Reports that the home cluster has not taken yet.")
        self.overflowed = Counter(
            f"{prefix}overflowed_calls_total",
            "Calls whose combination of client, topic and so on found no room, and that are counted together.",
        )
        labels = ["topic", "cluster", "api"]
        more = f"With reports of traffic alone. Topics beyond {MOST_TOPICS} count as `other`."
        self._records = Counter(f"{prefix}topic_records_total", f"Records by topic. {more}", labels)
        self._bytes = Counter(f"{prefix}topic_bytes_total", "Bytes of these records.", labels)
        self._errors = Counter(
            f"{prefix}topic_errors_total", "Calls about these topics that failed, or in part.", labels
        )
        self._unnamed = Gauge(f"{prefix}unnamed_topics", "Topics of the last report that count as `other`.")
        self._topics: set[str] = set()

    def note(self, interval: Interval) -> None:
        """Adds the traffic of an interval, on the thread that reports it."""
        sums: Sums[tuple[Counter, str, str, str]] = Sums()
        unnamed: set[str] = set()
        for who, tally in interval.tallies.items():
            if not who.topic:
                continue
            if len(self._topics) < MOST_TOPICS:
                self._topics.add(who.topic)
            elif who.topic not in self._topics:
                unnamed.add(who.topic)
            place = (who.topic if who.topic in self._topics else OTHER, who.cluster, who.api)
            sums[self._records, *place] += tally.records
            sums[self._bytes, *place] += tally.bytes
            sums[self._errors, *place] += tally.errors
        for (counter, *values), count in sums.items():
            counter.labels(*values).inc(count)
        self._unnamed.set(len(unnamed))
