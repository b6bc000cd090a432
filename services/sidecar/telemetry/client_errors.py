"""Errors of Kafka clients, counted each time and logged seldom: a disconnected client reports an error every second."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError

from services.sidecar.telemetry import metrics

REPEAT_SECONDS = 30.0

log = structlog.get_logger(__name__)


class ClientErrors:
    """The errors of one client. Any thread of the client may call."""

    def __init__(self, client: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`client`: the kind of the client, for metrics and log."""
        self._client = client
        self._clock = clock
        self._logged_at: dict[int, float] = {}
        self._silenced: dict[int, int] = {}

    def __call__(self, error: KafkaError) -> None:
        """Logs one line for each kind of error.

        The next line comes after `REPEAT_SECONDS`, with the number of errors in between.
        """
        metrics.client_errors.labels(self._client).inc()
        code, now = error.code(), self._clock()
        if now - self._logged_at.get(code, -REPEAT_SECONDS) < REPEAT_SECONDS:
            self._silenced[code] = self._silenced.get(code, 0) + 1
            return
        self._logged_at[code] = now
        log.warning(
            "a Kafka client reports an error",
            client=self._client,
            error=error.str(),
            code=error.name(),
            repeated=self._silenced.pop(code, 0),
        )
