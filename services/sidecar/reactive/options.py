"""What a reactive consumer is made with, and what of it changes at run time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from mesh.settings import is_loopback
from services.sidecar.consuming.records import InstanceId, InstanceOptions, Interest
from services.sidecar.delivering.routing import Route
from services.sidecar.reactive.lanes import BatchLimits

KEY_LANES = 16
"""Lanes of a partition that is ordered by key: so many of its batches may be with the backend at the same time."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How records get to the backend; the fields of DeliverySettings, in the contract with control."""

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
        """Of each partition."""
        return KEY_LANES if self.order_by_key else 1


@dataclass(frozen=True, slots=True)
class Change:
    """What shall be otherwise from now on. What is not said stays."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """Topics or pattern: what is read from now on, in place of what was read before."""
    delivery: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Delivery` by name."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern or self.delivery)

    @property
    def interest(self) -> Interest | None:
        """What is read from now on; None if that stays."""
        if not self.topics and not self.pattern:
            return None
        return Interest(topics=self.topics, pattern="" if self.topics else self.pattern)

    def followed_by(self, later: "Change") -> "Change":
        """Both, one after the other."""
        read = later if later.interest is not None else self
        return Change(read.topics, read.pattern, {**self.delivery, **later.delivery})

    def applied_to(self, delivery: Delivery) -> Delivery:
        return replace(delivery, **self.delivery)


NO_CHANGE = Change()


@dataclass(frozen=True, slots=True)
class ReactiveOptions:
    """What a reactive consumer is made with."""

    id: InstanceId
    interest: Interest
    delivery: Delivery
    instance: InstanceOptions
    """Formats, where it begins, how it belongs to its group."""
    max_held_records: int
    max_held_bytes: int
    commit_interval_seconds: float
    commit_records: int
    finish_seconds: float
    """What batches on their way may take when their partition is revoked."""
    exactly_once: bool = False
    backend_hosts: frozenset[str] = frozenset()
    """Where an order may have records sent besides this machine and the backend that the settings name."""

    def allows_backend(self, url: str) -> bool:
        """Whether an order may have records sent there."""
        host = _host(url)
        return is_loopback(host) or host in {_host(self.delivery.backend_url), *self.backend_hosts}


def _host(url: str) -> str:
    """In lower case; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
