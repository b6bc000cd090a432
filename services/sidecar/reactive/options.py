"""The options of a reactive consumer, and their changes at run time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from mesh.settings import is_loopback
from services.sidecar.consuming.instance_values import InstanceId, InstanceOptions, Interest
from services.sidecar.delivering.routing import Route
from services.sidecar.reactive.lanes import BatchLimits

KEY_LANES = 16
"""Lanes of a partition that is ordered by key. The backend may have so many of its batches at the same time."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery of records to the backend; the fields of DeliverySettings, in the contract with control."""

    backend_url: str
    backend_path: str
    max_concurrency: int
    order_by_key: bool
    max_batch_records: int
    max_batch_bytes: int
    linger_ms: int
    filter: str = ""
    routes: tuple[Route, ...] = ()

    @property
    def limits(self) -> BatchLimits:
        return BatchLimits(self.max_batch_records, self.max_batch_bytes, self.linger_ms / 1000)

    @property
    def lanes(self) -> int:
        """The number of lanes of each partition."""
        return KEY_LANES if self.order_by_key else 1


@dataclass(frozen=True, slots=True)
class Change:
    """A change at run time. A field that is not set stays as it is."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """Topics or a pattern: they replace the topics or the pattern from before."""
    delivery: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Delivery` by name."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern or self.delivery)

    @property
    def interest(self) -> Interest | None:
        """The topics or the pattern to read from now on; None if they stay."""
        if not self.topics and not self.pattern:
            return None
        return Interest(topics=self.topics, pattern="" if self.topics else self.pattern)

    def followed_by(self, later: "Change") -> "Change":
        """The change that has the effect of this change and the later change together."""
        read = later if later.interest is not None else self
        return Change(read.topics, read.pattern, {**self.delivery, **later.delivery})

    def applied_to(self, delivery: Delivery) -> Delivery:
        return replace(delivery, **self.delivery)


NO_CHANGE = Change()


@dataclass(frozen=True, slots=True)
class ReactiveOptions:
    """The options of a reactive consumer."""

    id: InstanceId
    interest: Interest
    delivery: Delivery
    instance: InstanceOptions
    """Formats, the offset reset, and the membership in the group."""
    max_held_records: int
    max_held_bytes: int
    commit_interval_seconds: float
    commit_records: int
    finish_seconds: float
    """The time that batches on their way have to end when their partition is revoked."""
    exactly_once: bool = False
    backend_hosts: frozenset[str] = frozenset()
    """Further hosts that an order may send records to, besides this machine and the settings' backend."""

    def allows_backend(self, url: str) -> bool:
        """Whether an order may send records to this address."""
        host = _host(url)
        return is_loopback(host) or host in {_host(self.delivery.backend_url), *self.backend_hosts}


def _host(url: str) -> str:
    """The host of an address in lower case; empty if the address has no host."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
