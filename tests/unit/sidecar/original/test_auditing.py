"""The original's settings of audit, in our words."""

from typing import Any

import pytest

from services.sidecar.original.auditing import audit_settings

ALL = ("PRODUCER", "REACTIVE_CONSUMER", "ACTIVE_CONSUMER", "STREAMING_CONSUMER", "STREAMING_PRODUCER")
SHIPPED = {"auditEnabled": True, "auditTarget": "logfile", "auditTopic": "sidecar-audit"}
TOPIC = {**SHIPPED, "auditTarget": "topic"}
OFF = {**SHIPPED, "auditEnabled": False}


@pytest.mark.parametrize(
    ("producer", "consumer", "settings", "warnings"),
    [
        (SHIPPED, SHIPPED, {"audit_target": "logfile", "audit_types": ALL}, 0),
        ({}, {}, {"audit_target": "logfile", "audit_types": ALL}, 0),
        (TOPIC, TOPIC, {"audit_target": "topic", "audit_types": ALL, "audit_topic": "sidecar-audit"}, 0),
        (OFF, OFF, {"audit_target": "off"}, 0),
        (SHIPPED, OFF, {"audit_target": "logfile", "audit_types": (ALL[0], *ALL[3:])}, 0),
        (OFF, TOPIC, {"audit_target": "topic", "audit_types": ALL[1:], "audit_topic": "sidecar-audit"}, 0),
        (SHIPPED, TOPIC, {"audit_target": "both", "audit_types": ALL, "audit_topic": "sidecar-audit"}, 1),
        (
            TOPIC,
            {**TOPIC, "auditTopic": "other"},
            {"audit_target": "topic", "audit_types": ALL, "audit_topic": "sidecar-audit"},
            1,
        ),
        # light-kafka's own defaults have them the other way round
        (
            {"auditTarget": "", "auditTopic": "logfile"},
            {"auditTarget": "", "auditTopic": "logfile"},
            {"audit_target": "logfile", "audit_types": ALL},
            0,
        ),
    ],
)
def test_audit(producer: dict[str, Any], consumer: dict[str, Any], settings: dict[str, Any], warnings: int) -> None:
    found = audit_settings({"kafka-producer": producer, "kafka-consumer": consumer})
    assert found.settings == settings
    assert len(found.warnings) == warnings
