"""Reads and changes the settings of topics on a cluster. Each function raises KafkaException."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

REQUEST_S: Final = 4.0


def own_settings(client: AdminClient, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each topic the settings that were made on it, defaults left out."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = client.describe_configs(resources, request_timeout=REQUEST_S)
    return {
        resource.name: {entry.name: entry.value for entry in future.result(REQUEST_S).values() if _made_on_topic(entry)}
        for resource, future in futures.items()
    }


def effective_settings(client: AdminClient, topics: Sequence[str], names: Collection[str]) -> dict[str, dict[str, str]]:
    """For each topic the effective values of these settings, wherever they were made."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = client.describe_configs(resources, request_timeout=REQUEST_S)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in future.result(REQUEST_S).values()
            if entry.name in names and entry.value is not None
        }
        for resource, future in futures.items()
    }


def _made_on_topic(entry: ConfigEntry) -> bool:
    made_on_topic = ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    return made_on_topic and entry.value is not None and not entry.is_sensitive


def set_topic_settings(client: AdminClient, topic: str, settings: Mapping[str, str | None]) -> None:
    """None takes a setting back, so that the default counts. Settings that are not named stay as they are."""
    changes = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    client.incremental_alter_configs([resource], request_timeout=REQUEST_S)[resource].result(REQUEST_S)
