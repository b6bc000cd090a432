"""What all parts of a sidecar that work by themselves have in common."""

from dataclasses import dataclass

from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.delivering.deliverer import Target
from services.sidecar.formats.reading import RecordReader
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.serializing import Serializer
from services.sidecar.settings import SidecarSettings
from services.sidecar.traffic import SidecarTraffic


@dataclass(frozen=True, slots=True)
class Equipment:
    """One for a sidecar."""

    settings: SidecarSettings
    producer: RecordProducer
    serializer: Serializer
    reader: RecordReader
    audit: AuditTrail
    traffic: SidecarTraffic
    backend: Target
    """One circuit, one bound and one address, whoever delivers."""
