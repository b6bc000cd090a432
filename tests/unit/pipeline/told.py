"""Audit events as they are read, without a cluster to read them from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from confluent_kafka import Message


class Unkeyed:
    """A message of which nothing is known but its value."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None


def event(number: int, at: datetime) -> bytes:
    """As a sidecar writes one; its id is made of the number."""
    return json.dumps(
        {
            "id": f"{number:08x}-0000-0000-0000-000000000000", "serviceId": "shop", "auditType": "PRODUCER",
            "auditStatus": "SUCCESS", "timestamp": int(at.timestamp() * 1000),
        }
    ).encode()  # fmt: skip


def events(
    *values: bytes, topic: str = "audit", partition: int = 3, times_ms: Sequence[int | None] | None = None
) -> Any:
    """Rows of what these records of cluster c1 are, from offset 0 on."""
    from services.pipeline.auditing.events import Records, events_of

    messages = cast("list[Message]", [Unkeyed(value) for value in values])
    told = times_ms or [None] * len(values)
    return events_of(Records(topic, partition, range(len(values)), told, values, messages), "c1")
