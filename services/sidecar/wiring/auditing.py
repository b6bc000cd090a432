"""The audit trail that the settings ask for."""

from services.sidecar.auditing.file_target import FileTarget
from services.sidecar.auditing.target_queue import Overflow, QueueLimits, TargetQueue
from services.sidecar.auditing.text import AuditText
from services.sidecar.auditing.topic_target import TopicTarget, audit_producer_properties
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.kafka_properties import audit_properties


def audit_trail(settings: SidecarSettings) -> AuditTrail:
    """Off, or with one target or two. It has to be started."""
    text = audit_text(settings)
    keeps = settings.audit_on_overflow is Overflow.BLOCK
    limits = QueueLimits(
        settings.audit_max_queued_records,
        settings.audit_max_queued_bytes,
        settings.audit_on_overflow,
        settings.audit_retry_ms / 1000,
    )
    queues: list[TargetQueue] = []
    if settings.audit_target.names_topic:
        properties = audit_producer_properties(
            audit_properties(settings),
            max_records=limits.max_records,
            timeout_ms=0 if keeps else settings.audit_retry_ms,
        )
        topic = TopicTarget(properties, settings.audit_topic, keeps=keeps)
        queues.append(TargetQueue(topic, text.message, limits))
    if settings.audit_target.names_file:
        file = FileTarget(
            settings.audit_file, max_bytes=settings.audit_file_bytes, archives=settings.audit_file_archives
        )
        queues.append(TargetQueue(file, text.line, limits))
    return AuditTrail(queues, settings.audit_types)


def audit_text(settings: SidecarSettings) -> AuditText:
    """How records look."""
    return AuditText(service_id(settings))


def service_id(settings: SidecarSettings) -> str:
    """The service id in audit records: the setting `service_id`, else the sidecar's name."""
    return settings.service_id if "service_id" in settings.model_fields_set else settings.name
