"""Pushes this sidecar's metrics to InfluxDB: line protocol over HTTP, every so often.

Source: https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable

import httpx
import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from services.sidecar.telemetry import metrics

PREFIX = "kafka_mesh_sidecar_"
PUSH_SECONDS = 10.0
"""Bound of one request."""
MAX_LINES_PER_PUSH = 5_000
"""A body stays below the limit of servers; the rest goes into the next request of the same push."""
_TAG_ESCAPES = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ ", "\n": r"\ "})

log = structlog.get_logger(__name__)


def lines(registry: CollectorRegistry, tags: dict[str, str], at_ns: int) -> Iterable[str]:
    """One line for each sample: `measurement,tag=value,... value=1.5 time`.

    Empty tags, NaN and infinities are left out.
    """
    for family in registry.collect():
        for sample in family.samples:
            if not sample.name.startswith(PREFIX) or not math.isfinite(sample.value):
                continue
            given = {name: value for name, value in {**tags, **sample.labels}.items() if value}
            shown = "".join(f",{_escaped(name)}={_escaped(value)}" for name, value in sorted(given.items()))
            yield f"{sample.name}{shown} value={float(sample.value)!r} {at_ns}"


class InfluxPush:
    """The background task. A failed push is counted and not repeated: the next push has newer numbers."""

    def __init__(self, url: str, *, interval_seconds: float, token: str, tags: dict[str, str]) -> None:
        self._url = url
        self._interval = interval_seconds
        self._tags = tags
        headers = {"Authorization": f"Token {token}"} if token else {}
        self._client = httpx.AsyncClient(timeout=PUSH_SECONDS, headers=headers)

    async def run(self) -> None:
        """Pushes for ever."""
        while True:
            await asyncio.sleep(self._interval)
            await self.push()

    async def push(self) -> None:
        """Pushes once; never raises for an answer of the server."""
        found = await asyncio.to_thread(lambda: list(lines(REGISTRY, self._tags, time.time_ns())))
        for start in range(0, len(found), MAX_LINES_PER_PUSH):
            body = "\n".join(found[start : start + MAX_LINES_PER_PUSH]) + "\n"
            try:
                await self._send(body.encode())
            except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
                metrics.influx_pushes.labels("failed").inc()
                log.warning("metrics were not pushed", reason=_reason(error))
                return
        metrics.influx_pushes.labels("pushed").inc()

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, body: bytes) -> None:
        """Sends one push. Only the status of the answer is read: its body has no bound."""
        async with asyncio.timeout(PUSH_SECONDS), self._client.stream("POST", self._url, content=body) as answer:
            answer.raise_for_status()


def _reason(error: Exception) -> str:
    """Without the address: credentials may be in it."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return type(error).__name__


def _escaped(text: str) -> str:
    return text.translate(_TAG_ESCAPES)
