"""The original's kafka-streams.yml as our settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.sidecar.original.folder import Folder

FILE = "kafka-streams"
PLACEHOLDER = "placeholder"
"""The application id that the original ships."""
_SHARED = {
    "deadLetterEnabled": "dead_letter_enabled", "deadLetterTopicExt": "dead_letter_extension",
    "auditEnabled": "audit_target", "auditTarget": "audit_target", "auditTopic": "audit_topic",
}  # fmt: skip
"""Settings that hold for the whole sidecar, and come from kafka-consumer.yml and kafka-producer.yml."""
_USED = frozenset({"properties", "cleanUp", "deadLetterControllerTopic"})


def stream_settings(read: Folder) -> dict[str, Any]:
    """Our settings, without the topologies: the original's topologies are Java, so the user names ours separately."""
    said = read.files[FILE]
    properties = said.get("properties") or {}
    settings: dict[str, Any] = {
        "streams_clean_up": bool(said.get("cleanUp")),
        "streams_auto_offset_reset": properties.get("auto.offset.reset", "earliest"),
    }
    if application := application_id(read):
        settings["streams_application_id"] = application
    return settings


def application_id(read: Folder) -> str:
    """The application's id; empty if nobody set the id."""
    said = (read.files[FILE].get("properties") or {}).get("application.id") or ""
    return "" if said == PLACEHOLDER else str(said)


def stream_warnings(read: Folder) -> Iterator[str]:
    """The settings of the file that are not used, each with the reason."""
    if FILE not in read.own:
        return
    said = read.files[FILE]
    for name in sorted(said.keys() & _SHARED.keys()):
        if read.differs(FILE, name):
            yield f"{name} is not used: {_SHARED[name]} is said once for the whole sidecar"
    if (said.get("properties") or {}).get("state.dir") not in (None, "/tmp"):  # the value that the original ships
        yield "properties.state.dir is not used: state is kept in state_dir"
    for name in sorted(said.keys() - _SHARED.keys() - _USED):
        yield f"{name} is not known here, and not used"
