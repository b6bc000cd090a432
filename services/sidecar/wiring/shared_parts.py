"""The parts that the reactive consumer, the jobs and the topologies of a sidecar share."""

from dataclasses import dataclass

from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.delivering.deliverer import Target
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.serializing import Serializer
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry.traffic import SidecarTraffic


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The shared parts of one sidecar."""

    settings: SidecarSettings
    producer: RecordProducer
    serializer: Serializer
    reader: RecordReader
    audit: AuditTrail
    traffic: SidecarTraffic
    backend: Target
    """All deliverers share its circuit, its bound and its address."""
