"""The properties of the Kafka client of one instance."""

from typing import Any

from services.sidecar.consuming.instance_values import GroupProtocol, InstanceId, InstanceOptions
from services.sidecar.telemetry.client_statistics import client_reports

_OF_CLASSIC_GROUPS = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""The broker decides these in the newer protocol; a client that names them is refused."""


def instance_properties(base: dict[str, Any], id_: InstanceId, options: InstanceOptions) -> dict[str, Any]:
    """The sidecar's properties for consumers, with those of this instance."""
    properties = {
        **base,
        "group.id": id_.group,
        "auto.offset.reset": options.offset_reset,
        "enable.auto.commit": options.auto_commit,
        "enable.auto.offset.store": False,
        "stats_cb": client_reports("consumer"),
    }
    if options.group_instance_id:
        properties["group.instance.id"] = options.group_instance_id
    if options.group_protocol is GroupProtocol.CONSUMER:
        properties["group.protocol"] = GroupProtocol.CONSUMER.value
        for name in _OF_CLASSIC_GROUPS:
            properties.pop(name, None)
    return properties
