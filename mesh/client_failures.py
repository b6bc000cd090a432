"""The exceptions of confluent-kafka's clients, and the Kafka error inside each."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

CLIENT_FAILURES: Final = (KafkaException, SystemError)
"""The exceptions that a call of a client raises.

A fatal error comes out of any call that serves events: as KafkaException, or, if one of our callbacks was running, as
SystemError with the KafkaException as its cause.
"""


def error_of(failure: KafkaException | SystemError) -> KafkaError:
    """The Kafka error inside one of `CLIENT_FAILURES`."""
    found: BaseException | None = failure
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__
    return found.args[0] if found is not None else KafkaError(KafkaError._FATAL, str(failure), fatal=True)
