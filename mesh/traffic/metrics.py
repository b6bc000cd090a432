"""The metrics of reporting, by the service that reports."""

from prometheus_client import Counter, Gauge


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
