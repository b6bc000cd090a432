"""The audit settings of the original's files. The original has them twice, for producers and for consumers; we once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOPIC, LOGFILE = "topic", "logfile"
TYPES = {
    "kafka-producer": ("PRODUCER",),
    "kafka-consumer": ("REACTIVE_CONSUMER", "ACTIVE_CONSUMER"),
}
"""The types of audit records that each file is about."""
STREAMING = ("STREAMING_CONSUMER", "STREAMING_PRODUCER")
MEMBERS = frozenset({"auditEnabled", "auditTarget", "auditTopic"})


@dataclass(frozen=True, slots=True)
class AuditTranslation:
    """Our settings, and by file, the original's settings that ours cannot express."""

    settings: Mapping[str, Any]
    warnings: tuple[tuple[str, str], ...]


def audit_settings(files: Mapping[str, Mapping[str, Any]]) -> AuditTranslation:
    """The audit settings of kafka-producer.yml and kafka-consumer.yml."""
    switched_on = [file for file in TYPES if _is_on(files[file].get("auditEnabled", True))]
    if not switched_on:
        return AuditTranslation({"audit_target": "off"}, ())
    warnings = []
    targets = dict.fromkeys(_target(files[file]) for file in switched_on)
    if len(targets) > 1:
        warnings.append(
            ("kafka-consumer", "auditTarget is another one than in kafka-producer.yml: all audit goes to both")
        )
    topics = [str(files[file].get("auditTopic") or "") for file in switched_on if _target(files[file]) == TOPIC]
    if len(set(topics)) > 1:
        warnings.append(("kafka-consumer", "auditTopic is another one than in kafka-producer.yml, which counts"))
    settings: dict[str, Any] = {
        "audit_target": "both" if len(targets) > 1 else next(iter(targets)),
        "audit_types": tuple(type_ for file in switched_on for type_ in TYPES[file]) + STREAMING,
    }
    if topics and topics[0]:
        settings["audit_topic"] = topics[0]
    return AuditTranslation(settings, tuple(warnings))


def _target(file: Mapping[str, Any]) -> str:
    """The target of a file. Any target but a topic means the log file, as in the original."""
    return TOPIC if str(file.get("auditTarget") or "").strip().lower() == TOPIC else LOGFILE


def _is_on(value: object) -> bool:
    return str(value).strip().lower() == "true"
