"""What clients have told of themselves: one entry for each client instance, in memory alone, bounded.

Theory of operation
1. All clients have one subscription; its id follows from what it says, so every gateway gives the same, and a client
   may push to another gateway than the one that it asked.
2. A client that pushes deltas is summed up here. One that hops between gateways is summed up in parts: the parts of all
   gateways together are the truth.
3. With too many clients, or too many series of one client, those that were told of longest ago leave.
4. `by_instance`, and the series of a client, are replaced and never changed: /metrics reads them from a thread.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from services.gateway.requests.telemetry.otlp import Point
from services.gateway.wire.compression import Codec

SERIES_OF_A_CLIENT: Final = 500
"""Clients times this bounds memory: about 200 bytes for each series."""
SILENT_INTERVALS: Final = 3
"""A client that has not pushed for so many intervals is no longer shown."""
CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""What clients may compress with, the best first: they take the first that they have."""

ALL_METRICS: Final = ("",)
"""As the protocol says it: every name begins with this."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What clients are asked to send."""

    prefixes: tuple[str, ...] = ALL_METRICS
    """Of names of metrics; none: nothing is asked for."""
    interval_s: float = 60.0
    max_bytes: int = 256 * 1024
    """Of one push, as it comes over the wire."""

    @property
    def interval_ms(self) -> int:
        return int(self.interval_s * 1000)

    @property
    def subscription_id(self) -> int:
        said = "\n".join((*self.prefixes, str(self.interval_ms), str(self.max_bytes)))
        return zlib.crc32(said.encode()) & 0x7FFF_FFFF

    @property
    def max_decompressed_bytes(self) -> int:
        return max(4 * self.max_bytes, 1 << 20)


class SeriesKey(NamedTuple):
    name: str
    attributes: tuple[tuple[str, str], ...]


NEVER: Final = float("-inf")


@dataclass(slots=True)
class TelemetryClient:
    """One client instance, from its first push on. Times are monotonic seconds."""

    client_id: str = ""
    software_name: str = ""
    software_version: str = ""
    asked_at: float = NEVER
    """When it last asked for the subscription."""
    pushed_at: float = NEVER
    came_at: float = NEVER
    terminated: bool = False
    misled: bool = False
    """Its last push was refused for what it had been told: it may ask again at once."""
    series: Mapping[SeriesKey, float] = field(default_factory=dict)
    """What was told of longest ago first."""

    def take(self, found: Iterable[Point]) -> int:
        """Take over what was pushed; returns how many series were too many."""
        series = dict(self.series)
        for point in found:
            if point.delta and not isfinite(point.value):
                continue  # the sum would be lost for ever
            key = SeriesKey(point.name, point.attributes)
            before = series.pop(key, 0.0)
            series[key] = before + point.value if point.delta else point.value
        surplus = max(0, len(series) - SERIES_OF_A_CLIENT)
        for key in list(series)[:surplus]:
            del series[key]
        self.series = series
        return surplus


class Telemetry:
    """All client instances that this gateway hears of."""

    __slots__ = ("by_instance", "capacity", "dropped_series", "pushes", "refused_pushes", "subscription")

    def __init__(self, subscription: Subscription | None = None, capacity: int = 300) -> None:
        self.subscription = subscription or Subscription()
        self.capacity = capacity
        self.by_instance: Mapping[bytes, TelemetryClient] = {}
        self.pushes = 0
        self.refused_pushes = 0
        self.dropped_series = 0
        """That were too many for one client."""

    def client(self, instance_id: bytes, now: float) -> TelemetryClient:
        """The client with this instance id, known or new."""
        known = self.by_instance.get(instance_id)
        if known is None:
            known = TelemetryClient(came_at=now)
            others = {each: client for each, client in self.by_instance.items() if not self.is_silent(client, now)}
            if len(others) >= self.capacity:
                del others[min(others, key=lambda each: _last_heard(others[each]))]
            self.by_instance = {**others, instance_id: known}
        return known

    def is_silent(self, client: TelemetryClient, now: float) -> bool:
        """Whether it has not pushed for so long that it counts no more."""
        return now - _last_heard(client) > SILENT_INTERVALS * self.subscription.interval_s


def _last_heard(client: TelemetryClient) -> float:
    return max(client.came_at, client.pushed_at)
