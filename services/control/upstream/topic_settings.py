"""Changes settings of topics on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

REQUEST_S: Final = 4.0


def set_topic_settings(client: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Settings that are not named stay as they are. Raises KafkaException."""
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    client.incremental_alter_configs([resource], request_timeout=REQUEST_S)[resource].result(REQUEST_S)
