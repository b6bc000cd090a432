"""Makes the consumer instances of the backend from settings."""

from services.sidecar.consuming.group_consumer import ReadLimits
from services.sidecar.consuming.instance import InstanceLimits
from services.sidecar.consuming.instances import Instances
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.settings import SidecarSettings
from services.sidecar.state.state_file import StateFile
from services.sidecar.wiring.kafka_properties import consumer_properties


def instances(settings: SidecarSettings, file: StateFile | None, reader: RecordReader) -> Instances:
    """The instances of one sidecar, kept in a file if there is one."""
    return Instances(
        settings.name,
        consumer_properties(settings),
        InstanceLimits(
            max_instances=settings.max_instances,
            idle_seconds=settings.instance_timeout_ms / 1000,
            commit_seconds=settings.commit_timeout_ms / 1000,
            read=ReadLimits(settings.read_linger_ms / 1000, settings.max_poll_records),
        ),
        file,
        reader,
    )
