"""Gateways and control share this about transactions over several clusters: identities, decisions, parts. No I/O."""

from mesh.transactions.log import TransactionLog
from mesh.transactions.records import NOTE_VALUE, UNKNOWN_OFFSET, Decision, Identity, LogPlace, Part, note_key
from mesh.transactions.registry import EPOCHS, LOG_PARTITION, TRANSACTIONS_TOPIC, parts_of, registry_partition
from mesh.transactions.states import (
    COMMITTED,
    ONGOING,
    OPEN,
    PART_TIMEOUT_MS,
    SECOND_PROTOCOL_SINCE,
    STATE_TOPIC,
    was_committed,
)

__all__ = [
    "COMMITTED",
    "EPOCHS",
    "LOG_PARTITION",
    "NOTE_VALUE",
    "ONGOING",
    "OPEN",
    "PART_TIMEOUT_MS",
    "SECOND_PROTOCOL_SINCE",
    "STATE_TOPIC",
    "TRANSACTIONS_TOPIC",
    "UNKNOWN_OFFSET",
    "Decision",
    "Identity",
    "LogPlace",
    "Part",
    "TransactionLog",
    "note_key",
    "parts_of",
    "registry_partition",
    "was_committed",
]
