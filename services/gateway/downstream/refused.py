"""Refused operations and batches on their way to metrics and to the log, bounded.

Each client, operation and resource, or topic and rule, has a line in the log once a minute, with the reason. The client
does not hear which ACL decides. A client may try names without end, so there is a limit of lines for all clients
together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from mesh.validation import Mode
from services.gateway import metrics
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.auditing.invalid import InvalidBatch, InvalidTopic
from services.gateway.requests.auditing.refusals import Refused as AnyRefused
from services.gateway.requests.auditing.withheld import Withheld
from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.wire.apis import api_name

log = structlog.get_logger(__name__)

TOLD_SECONDS: Final = 60.0
TOLD_REMEMBERED: Final = 10_000
"""Refusals that had a line in the last minute: about 3 MB."""
LINES: Final = 600
"""The most lines in `TOLD_SECONDS`."""
TOPICS_COUNTED: Final = 200
"""Topics that metrics name: clients may name topics without end."""


class Refused:
    """See above."""

    def __init__(self) -> None:
        self._told: BoundedCache[tuple[object, ...], bool] = BoundedCache(TOLD_REMEMBERED, TOLD_SECONDS)
        self.audit: Callable[[AnyRefused], None] | None = None
        """Gets the refusals that have a line in the log, too."""
        self._since = -TOLD_SECONDS
        self._lines = 0
        self._topics: set[str] = set()

    def take(self, refusal: Refusal) -> None:
        """An operation that the ACLs do not allow."""
        counter = metrics.refused_operations if refusal.enforced else metrics.observed_refusals
        counter.labels(refusal.resource_type.name.lower(), refusal.operation.name.lower()).inc()
        key = (refusal.principal, refusal.host, refusal.operation, refusal.resource_type, refusal.resource_name)
        if not self._is_told(refusal, key):
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

    def take_topic(self, topic: InvalidTopic) -> None:
        """A topic that a client wants to create, whose name breaks a rule of validation."""
        rule_id = topic.breach.rule.rule_id
        counter = metrics.refused_topics if topic.enforced else metrics.observed_topics
        counter.labels(rule_id).inc()
        if not self._is_told(topic, (topic.principal, topic.host, topic.client_id, topic.topic, rule_id)):
            return
        what = {
            "principal": topic.principal,
            "host": topic.host,
            "client_id": topic.client_id,
            "topic": topic.topic,
            "rule": rule_id,
            "reason": topic.breach.reason,
        }
        if topic.enforced:
            log.warning("a topic is not created", **what)
        else:
            log.warning("a topic would not be created", **what)

    def take_batch(self, batch: InvalidBatch) -> None:
        """A batch that breaks a rule of validation."""
        topic, rule_id = batch.topic, batch.breach.rule.rule_id
        counter = metrics.refused_records if batch.enforced else metrics.observed_records
        counter.labels(self._counted(topic), rule_id).inc(max(0, batch.records))
        if not self._is_told(batch, (batch.principal, batch.host, batch.client_id, topic, rule_id)):
            return
        what = {
            "principal": batch.principal,
            "host": batch.host,
            "client_id": batch.client_id,
            "topic": topic,
            "partition": batch.partition,
            "rule": rule_id,
            "reason": batch.breach.reason,
        }
        if batch.enforced:
            log.warning("records are refused", **what)
        elif batch.breach.rule.mode is Mode.MARK:
            log.warning("records are marked", **what)
        else:
            log.warning("records would be refused", **what)

    def take_withheld(self, batch: Withheld) -> None:
        """Records that a rule of protection keeps from their client, or from their cluster."""
        way = "produce" if batch.is_write else "fetch"
        metrics.withheld_batches.labels(self._counted(batch.topic), batch.rule_id, way).inc()
        key = (batch.principal, batch.host, batch.client_id, batch.topic, batch.rule_id, way, batch.for_now)
        if not self._is_told(batch, key):
            return
        what = {
            "principal": batch.principal,
            "host": batch.host,
            "client_id": batch.client_id,
            "topic": batch.topic,
            "partition": batch.partition,
            "rule": batch.rule_id,
            "reason": batch.reason,
            "for_now": batch.for_now,
        }
        if batch.is_write:
            log.warning("records can't be protected, and are not stored", **what)
        else:
            log.warning("records are withheld from a client", **what)

    def _counted(self, topic: str) -> str:
        """The topic as metrics name it."""
        if len(self._topics) < TOPICS_COUNTED:
            self._topics.add(topic)
        return topic if topic in self._topics else "other"

    def _is_told(self, refusal: AnyRefused, key: tuple[object, ...]) -> bool:
        """Whether there is to be a line in the log; then the audit has the refusal."""
        if not self._has_room((*key, refusal.enforced), time.monotonic()):
            metrics.untold_refusals.inc()
            return False
        if self.audit is not None:
            self.audit(refusal)
        return True

    def _has_room(self, key: tuple[object, ...], now: float) -> bool:
        if self._told.get(key, now) is not None:
            return False
        if now - self._since >= TOLD_SECONDS:
            self._since, self._lines = now, 0
        if self._lines >= LINES:
            return False
        self._lines += 1
        self._told.put(key, True, now)
        return True
