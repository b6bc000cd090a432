"""The original's command to replay, `TopicReplayMetadata`: as a job, and as a record of the topic of commands."""

from collections.abc import Mapping
from typing import Any

from services.sidecar.consuming.positions import AtOffset
from services.sidecar.dead_letters.record import dead_letter_topic
from services.sidecar.formats import json_text
from services.sidecar.jobs.job import JobSpec, Range, RefusedError, ToBackend, ToTopic

MEMBERS = (
    "topicName", "dlqIndicator", "partition", "startOffset", "endOffset", "consumerGroup", "timeout", "streamingApp",
    "destinationTopic", "lastRetry",
)  # fmt: skip
_LARGEST_PARTITION, _LARGEST_OFFSET = 2**31 - 1, 2**63 - 2
SCHEMA = json_text.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Topic Replay Metadata",
        "type": "object",
        "properties": {
            "topicName": {"type": "string"},
            "dlqIndicator": {"type": "boolean"},
            "partition": {"type": "integer"},
            "startOffset": {"type": "integer"},
            "endOffset": {"type": "integer"},
            "consumerGroup": {"type": "string"},
            "timeout": {"type": "integer"},
            "streamingApp": {"type": "boolean"},
            "destinationTopic": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "lastRetry": {"type": "boolean"},
        },
    }
).decode()
"""The JSON schema of commands in the topic, used if there is a schema registry."""


def job_spec(command: Mapping[str, Any], extension: str) -> JobSpec:
    """The job that a command asks for. RefusedError, with the original's text, when the command makes no sense."""
    topic, group = command.get("topicName"), command.get("consumerGroup")
    destination = command.get("destinationTopic")
    if not topic or not isinstance(topic, str):
        raise RefusedError("topic name can not be empty")
    partition, start, end = (_number(command, name) for name in ("partition", "startOffset", "endOffset"))
    if partition < 0:
        raise RefusedError("partition can not be negative")
    if start < 0:
        raise RefusedError("replay start offset can not be negative")
    if end < 0:
        raise RefusedError("replay end offset can not be negative")
    if start > end:
        raise RefusedError("replay end offset can not be less than start offset")
    if start == end:
        raise RefusedError("replay end offset can not be equal to start offset")
    if not group:
        raise RefusedError("replay consumer group can not be empty")
    if command.get("streamingApp") and not destination:
        raise RefusedError("Destination topic can not be empty for a streaming app")
    return JobSpec(
        ranges=(Range(topic, partition, AtOffset(start), AtOffset(end)),),
        destination=(
            ToTopic(str(destination))
            if command.get("streamingApp")
            else ToBackend(last_retry=bool(command.get("lastRetry", False)))
        ),
        group=str(group),
        dead_letters=bool(command.get("dlqIndicator", False)) or topic.endswith(extension),
    )


def command_record(command: Mapping[str, Any], extension: str) -> tuple[str, dict[str, Any]]:
    """Key and value in the original's form. A command for dead letters names the topic of the dead letters."""
    topic = str(command["topicName"])
    if command.get("dlqIndicator"):
        topic = dead_letter_topic(topic, extension)
    said = {name: command[name] for name in MEMBERS if command.get(name) is not None}
    return topic, {**said, "topicName": topic}


def _number(command: Mapping[str, Any], name: str) -> int:
    value = command.get(name) or 0  # the default of Java's numbers
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError(f"{name} is no whole number")
    if abs(value) > (_LARGEST_PARTITION if name == "partition" else _LARGEST_OFFSET):
        raise RefusedError(f"{name} is larger than Kafka's can be")
    return value
