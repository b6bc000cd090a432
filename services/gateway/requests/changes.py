"""The command by which a plan asks control for a change, in the name of the client."""

from dataclasses import dataclass

from mesh.rpc import kafka_changes


@dataclass(frozen=True, slots=True)
class Change:
    """Control shall make this change in the name of the client. Result: KafkaChangeResponse or NotChanged."""

    request: kafka_changes.KafkaChangeRequest


@dataclass(frozen=True, slots=True)
class NotChanged:
    """Control has not made the change, or has not said so."""

    status: str
    """The gRPC status, by its name."""
    reason: str
