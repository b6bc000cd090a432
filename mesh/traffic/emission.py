"""A service's traffic, from its settings to its reports; nothing where no home cluster is set."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from mesh.traffic.counting import Counts
from mesh.traffic.metrics import TrafficMetrics
from mesh.traffic.settings import TrafficSettings

if TYPE_CHECKING:
    from mesh.traffic.reporter import TrafficReporter

LAST_REPORT_S = 2.0
"""Time that the last report may take at a stop."""

log = structlog.get_logger(__name__)


class Emission:
    """The reporting of one service. The loop that counts calls `start` and `stop`."""

    def __init__(self, settings: TrafficSettings, name: str, kind: str, metrics: TrafficMetrics) -> None:
        """`kind`: of service, "gateway" or "sidecar"; `name`: which one it is."""
        self._settings = settings
        self.counts: Counts | None = None
        """The counts of calls; None: calls are not counted."""
        self._reporter: TrafficReporter | None = None
        if not settings.home_bootstrap_servers:
            return
        # with numpy and Kafka's client, which take 0.2 s and 40 MB: only for those who have somebody to tell
        from mesh.home_cluster import HomeCluster
        from mesh.traffic.reporter import ReportWriter, TrafficReporter
        from mesh.traffic.sketches import LatencySketch

        home = HomeCluster(settings.home_bootstrap_servers, settings.home_properties)
        self.counts = Counts(LatencySketch, datetime.now(UTC))
        writer = ReportWriter(home, settings.traffic_topic, name, kind, metrics)
        self._reporter = TrafficReporter(self.counts, writer, settings.traffic_interval_s)

    def start(self) -> None:
        if self._reporter is None:
            log.info("traffic is not reported: home_bootstrap_servers is not set")
            return
        self._reporter.start()
        log.info(
            "traffic is reported to the home cluster",
            home=",".join(self._settings.home_bootstrap_servers),
            topic=self._settings.traffic_topic,
            interval_s=self._settings.traffic_interval_s,
        )

    async def stop(self) -> None:
        """Tells the rest."""
        if self._reporter is not None:
            await self._reporter.stop(LAST_REPORT_S)
