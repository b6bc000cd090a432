"""Refused operations on their way to metrics and to the log, bounded.

Each client, operation and resource has a line in the log once a minute, with the ACL that decides. The client does not
hear that reason. A client may try names without end, so there is a limit of lines for all clients together.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from services.gateway import metrics
from services.gateway.authorization.refusals import Refusal, Report
from services.gateway.requests.memory import BoundedCache
from services.gateway.wire.apis import api_name

log = structlog.get_logger(__name__)

TOLD_SECONDS: Final = 60.0
TOLD_REMEMBERED: Final = 10_000
"""Refusals that had a line in the last minute: about 3 MB."""
LINES: Final = 600
"""The most lines in `TOLD_SECONDS`."""


class Refused:
    """See above."""

    def __init__(self) -> None:
        self._told: BoundedCache[tuple[object, ...], bool] = BoundedCache(TOLD_REMEMBERED, TOLD_SECONDS)
        self.audit: Report | None = None
        """Gets the refusals that have a line in the log, too."""
        self._since = -TOLD_SECONDS
        self._lines = 0

    def take(self, refusal: Refusal) -> None:
        counter = metrics.refused_operations if refusal.enforced else metrics.observed_refusals
        counter.labels(refusal.resource_type.name.lower(), refusal.operation.name.lower()).inc()
        now = time.monotonic()
        if not self._has_room(refusal, now):
            metrics.untold_refusals.inc()
            return
        what = {
            "principal": refusal.principal,
            "host": refusal.host,
            "operation": refusal.operation.word,
            "resource_type": refusal.resource_type.word,
            "resource": refusal.resource_name,
            "api": api_name(refusal.api_key),
            "reason": refusal.reason,
        }
        if refusal.enforced:
            log.warning("an operation is refused", **what)
        else:
            log.warning("an operation would be refused", **what)
        if self.audit is not None:
            self.audit(refusal)

    def _has_room(self, refusal: Refusal, now: float) -> bool:
        key = (
            refusal.principal,
            refusal.host,
            refusal.operation,
            refusal.resource_type,
            refusal.resource_name,
            refusal.enforced,
        )
        if self._told.get(key, now) is not None:
            return False
        if now - self._since >= TOLD_SECONDS:
            self._since, self._lines = now, 0
        if self._lines >= LINES:
            return False
        self._lines += 1
        self._told.put(key, True, now)
        return True
