"""Names in a replay: topics of the mesh's clients, members, groups."""

from __future__ import annotations

from mesh.topics import is_own_topic, is_topic_name
from services.control.domain.errors import InvalidField
from services.control.domain.sidecars.instances import LONGEST_NAME, NUL


def check_topic(field: str, topic: str) -> None:
    if not topic:
        raise InvalidField(field, "is required: records of which topic?")
    if not is_topic_name(topic) or is_own_topic(topic):
        raise InvalidField(field, f"{topic!r} is no topic of the mesh's clients")


def check_name(field: str, name: str) -> None:
    if len(name) > LONGEST_NAME or NUL in name:
        raise InvalidField(field, f"has at most {LONGEST_NAME} characters, none of them a zero byte")
