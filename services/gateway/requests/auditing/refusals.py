"""Audit records of what ACLs and rules about records refuse, in the form of those of records."""

from __future__ import annotations

import json
from uuid import uuid4

from mesh.acls import ResourceType
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.auditing.invalid import InvalidBatch, InvalidTopic
from services.gateway.requests.auditing.records import MOST_FAILURE_CHARACTERS, MOST_KEY_CHARACTERS
from services.gateway.requests.auditing.withheld import Withheld

Refused = Refusal | InvalidBatch | InvalidTopic | Withheld


def refusal_event(refusal: Refused, service_id: str, now_ms: int) -> bytes:
    """The value of the audit record."""
    topic: str | None
    partition: int | None = None
    if isinstance(refusal, InvalidBatch):
        kind, topic, partition = "VALIDATION", refusal.topic, refusal.partition
    elif isinstance(refusal, InvalidTopic):
        kind, topic = "VALIDATION", refusal.topic
    elif isinstance(refusal, Withheld):
        kind, topic, partition = "PROTECTION", refusal.topic, refusal.partition
    else:
        kind = "AUTHORIZATION"
        topic = refusal.resource_name if refusal.resource_type is ResourceType.TOPIC else None
    return json.dumps(
        {
            "id": str(uuid4()),
            "serviceId": service_id,
            "auditType": kind,
            "topic": topic,
            "partition": partition,
            "offset": None,
            "correlationId": None,
            "traceabilityId": None,
            "key": refusal.principal[:MOST_KEY_CHARACTERS],
            "auditStatus": "FAILURE" if refusal.enforced else "SUCCESS",
            "stacktrace": str(refusal)[:MOST_FAILURE_CHARACTERS],
            "timestamp": now_ms,
            "traceId": None,
        }
    ).encode()
