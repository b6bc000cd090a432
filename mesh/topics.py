"""Which names Kafka takes for topics (`org.apache.kafka.common.internals.Topic`)."""

import re

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name."""
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..")
