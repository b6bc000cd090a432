"""Which names Kafka takes for topics (`org.apache.kafka.common.internals.Topic`), and which the mesh keeps."""

import re

LONGEST_NAME = 249
TOPIC_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")

OWN_PREFIXES = (
    "mesh.events",
    "mesh.audit",
    "mesh.snapshots",
    "mesh.record-",
    "mesh.traffic",
    "mesh.rehearsal.",
    "mesh.replays",
    "mesh.transactions",
)
"""The beginnings of the mesh's own topics: its log, its audit events, its counters of traffic, its workers' positions,
the records of rehearsals, the registry and the decisions of its transactions.

A client that wrote there could decide in the mesh, so no rule leads to these topics. A mesh that shares its home
cluster with another mesh calls its log "mesh.events-two" or the like.
"""


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name."""
    return bool(TOPIC_NAME.fullmatch(name)) and name not in (".", "..")


def is_own_topic(name: str) -> bool:
    """Whether the topic belongs to the mesh itself, and not to its clients."""
    return name.startswith(OWN_PREFIXES)
