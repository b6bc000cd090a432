"""The reactive consumer of the original's kafka-consumer.yml, as our settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from services.sidecar.original.folder import Folder

FILE = "kafka-consumer"
HOOK = "ReactiveConsumerStartupHook"
HOOKS = frozenset({HOOK})
NAMES = {
    "backendApiHost": "backend_url",
    "backendApiPath": "backend_path",
    "backendConnectionReset": "backend_connection_reset",
    "batchRollbackThreshold": "backend_rollback_threshold",
    "instanceTimeoutMs": "backend_timeout_ms",
    "maxConsumerThreads": "reactive_max_concurrency",
    "maxRetries": "backend_max_retries",
    "retryDelayMs": "backend_retry_delay_ms",
    "topic": "reactive_topics",
}
"""The original's names and ours. Two of the original's settings also concern instances."""
WITHOUT_COUNTERPART = frozenset({"waitPeriod"})
"""The pause between two polls, which this sidecar does not need."""


def reactive_settings(read: Folder, hooks: Collection[str]) -> dict[str, Any]:
    """Our settings. They are empty unless the consumer is on: by its start-up hook or, without hooks, by its topic."""
    said = read.files.get(FILE, {})
    is_on = HOOK in hooks if hooks else read.values.gives(f"{FILE}.topic")
    if not is_on or not said.get("topic"):
        return {"reactive_enabled": False} if hooks else {}
    settings = {ours: said[name] for name, ours in NAMES.items() if said.get(name) not in (None, "")}
    group = (said.get("properties") or {}).get("group.id")
    if group:
        settings["reactive_group"] = group
    return settings
