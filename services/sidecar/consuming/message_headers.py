"""The headers of a message, also if Kafka's client cannot decode them.

To Kafka a header's name is any bytes. The client needs UTF-8, and gives no headers of a record with any other name.
Such a record goes on without its headers: it must not stop its partition.
"""

from operator import methodcaller
from typing import Any, cast

import structlog
from confluent_kafka import Message

from services.sidecar.telemetry import metrics

_told = methodcaller("headers")
"""Replaces a direct call of `message.headers()`.

The client fails by returning a result and setting an error at the same time. For a frequent direct call, the
interpreter does not check for this error; for a call by other code, such as `methodcaller`, it does. Never call this
function twice for one message.
"""

log = structlog.get_logger(__name__)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a message in their order.

    If the client cannot decode them, the list is empty and a metric counts it.
    """
    try:
        found: Any = _told(message) or []
    except (SystemError, UnicodeDecodeError):  # the client raises the SystemError when it fails to decode
        metrics.untold_headers.inc()
        log.debug(
            "a record has a header whose name is no UTF-8, and goes on without its headers",
            topic=message.topic(), partition=message.partition(), offset=message.offset(),
        )  # fmt: skip
        return []
    return cast(list[tuple[str, bytes | None]], found)
