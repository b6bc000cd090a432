"""Which names Kafka takes for topics (`org.apache.kafka.common.internals.Topic`), and which the mesh keeps."""

import re

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

OWN_PREFIXES = ("mesh.events", "mesh.audit", "mesh.snapshots", "mesh.record-", "mesh.traffic", "mesh.replays")
"""How the topics begin in which the mesh keeps its own log, its audit events, its counters of traffic and the positions
of its workers. Whoever could write there through the mesh could decide in it, so no rule leads to them, however much it
matches. A mesh that shares its home cluster with another one calls its log "mesh.events-two" or the like.
"""


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name."""
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..")


def is_own_topic(name: str) -> bool:
    """Whether the topic belongs to the mesh itself, and not to its clients."""
    return name.startswith(OWN_PREFIXES)
