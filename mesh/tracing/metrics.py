"""The metrics of tracing, by the service that traces."""

from prometheus_client import Counter


class TracingMetrics:
    """The metrics of one process: made once."""

    def __init__(self, service: str) -> None:
        self.spans = Counter(
            f"kafka_mesh_{service}_spans_total",
            "Spans by what became of them: sent, failed (the receiver did not take them in time), lost (no room).",
            ["outcome"],
        )

    def count(self, outcome: str, spans: int) -> None:
        self.spans.labels(outcome).inc(spans)
