"""The headers of a message, also where Kafka's client cannot tell them.

To Kafka a header's name is any bytes; the client wants UTF-8, and gives no header at all of a record that has another
name. Such a record goes on without its headers: it must not stop its partition.
"""

from operator import methodcaller
from typing import Any, cast

import structlog
from confluent_kafka import Message

from services.sidecar import metrics

_told = methodcaller("headers")
"""Not `message.headers()`: the client fails with a result and an error at once, which a call by the interpreter itself
does not look at once it is a frequent one, while it looks at those by others. Never to be asked twice of a message."""

log = structlog.get_logger(__name__)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """In their order; none where they cannot be told, which is counted."""
    try:
        found: Any = _told(message) or []
    except (SystemError, UnicodeDecodeError):  # the former is how the client fails at the latter
        metrics.untold_headers.inc()
        log.debug(
            "a record has a header whose name is no UTF-8, and goes on without its headers",
            topic=message.topic(), partition=message.partition(), offset=message.offset(),
        )  # fmt: skip
        return []
    return cast(list[tuple[str, bytes | None]], found)
