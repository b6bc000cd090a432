"""The metrics that clients have sent of themselves: one entry for each client instance, in memory alone, bounded.

Theory of operation
1. All clients have one subscription, whose id is computed from its content. So every gateway gives the same id, and a
   client may push to another gateway than the one that it asked.
2. If a client pushes deltas, the gateway sums them up. If a client moves between gateways, each gateway has a part of
   the sum, and the parts together are the whole.
3. With too many clients, or too many series of one client, the least recently reported leave.
4. `by_instance`, and the series of a client, are replaced and never changed: /metrics reads them from a thread.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from mesh.compression import Codec
from services.gateway.requests.telemetry.otlp import Point

SERIES_OF_A_CLIENT: Final = 500
"""The number of clients times this bounds memory: about 200 bytes for each series."""
SILENT_INTERVALS: Final = 3
"""A client that has not pushed for so many intervals is no longer shown."""
CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Codecs with which clients may compress, the best first: a client takes the first one that it has."""

ALL_METRICS: Final = ("",)
"""The protocol's form of "all": every name begins with the empty prefix."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that clients are asked to send."""

    prefixes: tuple[str, ...] = ALL_METRICS
    """Prefixes of names of metrics; without any, the gateway asks for nothing."""
    interval_s: float = 60.0
    max_bytes: int = 256 * 1024
    """The most bytes of one push, as it comes over the wire."""

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
    """The time when it last asked for the subscription."""
    pushed_at: float = NEVER
    came_at: float = NEVER
    terminated: bool = False
    misled: bool = False
    """Its last push was refused for an unknown subscription or codec: it may ask again at once."""
    series: Mapping[SeriesKey, float] = field(default_factory=dict)
    """The least recently reported series comes first."""

    def take(self, found: Iterable[Point]) -> int:
        """Takes over the pushed points; returns how many series were too many."""
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
    """All client instances that push to this gateway."""

    __slots__ = ("by_instance", "capacity", "dropped_series", "on_push", "pushes", "refused_pushes", "subscription")

    def __init__(self, subscription: Subscription | None = None, capacity: int = 300) -> None:
        self.subscription = subscription or Subscription()
        self.capacity = capacity
        self.by_instance: Mapping[bytes, TelemetryClient] = {}
        self.on_push: Callable[[bytes, dict[str, str]], None] | None = None
        """Gets each push that was accepted, and attributes that tell who pushed; None if pushes go no further."""
        self.pushes = 0
        self.refused_pushes = 0
        self.dropped_series = 0
        """Series that were too many for one client."""

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
        """Whether the client has not pushed for so long that it counts no more."""
        return now - _last_heard(client) > SILENT_INTERVALS * self.subscription.interval_s


def _last_heard(client: TelemetryClient) -> float:
    return max(client.came_at, client.pushed_at)
