"""The settings of a sidecar's audit."""

from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, PositiveInt, model_validator
from pydantic_settings import NoDecode

from mesh.settings import Split
from mesh.topics import is_topic_name
from services.sidecar.auditing.events import AuditType
from services.sidecar.auditing.target_queue import Overflow


class AuditTarget(Enum):
    """The targets of audit records."""

    OFF = "off"
    TOPIC = "topic"
    LOGFILE = "logfile"
    BOTH = "both"

    @property
    def names_topic(self) -> bool:
        return self in (AuditTarget.TOPIC, AuditTarget.BOTH)

    @property
    def names_file(self) -> bool:
        return self in (AuditTarget.LOGFILE, AuditTarget.BOTH)


class AuditSettings(BaseModel):
    """A part of SidecarSettings."""

    audit_target: AuditTarget = AuditTarget.OFF
    """The targets of the audit records, which never hold a payload: see `docs/reference/sidecar-audit.md`."""
    audit_types: Annotated[tuple[AuditType, ...], Split, NoDecode] = tuple(AuditType)
    """Whose records are audited."""
    audit_topic: str = "sidecar-audit"
    """The topic of the audit records."""
    audit_file: Path = Path("log/sidecar-audit.log")
    """The log file of the audit records."""
    audit_file_bytes: PositiveInt = 200 * 1000 * 1000
    """The size of the log file."""
    audit_file_archives: int = Field(default=5, ge=0, le=1000)
    """The number of older files that are kept beside the log file."""
    audit_on_overflow: Overflow = Overflow.DROP
    """The side that yields if audit does not keep up: audit (`drop`, counted), or the work, which waits (`block`)."""
    audit_max_queued_records: PositiveInt = 50_000
    """The most records that may wait for each target."""
    audit_max_queued_bytes: PositiveInt = 32 * 1024 * 1024
    """The most bytes that may wait for each target."""
    audit_retry_ms: PositiveInt = 30_000
    """The time for attempts to write a record before it is lost; without end if audit_on_overflow is `block`."""

    @model_validator(mode="after")
    def _audit_goes_somewhere(self) -> "AuditSettings":
        if not is_topic_name(self.audit_topic):
            raise ValueError(f"audit_topic {self.audit_topic!r} is not the name of a topic")
        if "audit_topic" in self.model_fields_set and "audit_target" not in self.model_fields_set:
            raise ValueError(
                f"audit_topic {self.audit_topic}: nothing goes there before audit_target says so; "
                "set audit_target to topic, or both"
            )
        return self
