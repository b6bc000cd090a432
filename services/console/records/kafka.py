"""The console's clients of the gateway: their settings, the viewer's login, and their errors in words.

Theory of operation
1. A client belongs to one look of one viewer. It logs in with the token of this viewer, or with nothing, if the
   listener of the gateway asks for nothing. So ACLs, quotas and audit of the gateway count for the viewer.
2. A client is in no group and commits nothing. It has bounds in bytes, so a fast topic can't fill the memory.
3. librdkafka comes with the first look at records. A console of which nobody wants records does not load it.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from services.console.asking import wrong
from services.console.outcomes import GATEWAY, CallError, Ending
from services.console.records.wanted import MOST_PARTITIONS, Wanted
from services.console.sessions import end_of
from services.console.settings import ConsoleSettings

CLIENT_ID = "mesh.console"
TOKEN_LIFE_S = 3600.0
"""The assumed life of a token that does not say its end: librdkafka wants to know it. The gateway decides."""
KILOBYTE = 1024
QUEUE_KILOBYTES = KILOBYTE
"""Kilobytes of records that a client has fetched ahead."""
FETCH_BYTES = 512 * KILOBYTE
"""Bytes of one answer, unless a single record is larger."""
LARGEST_ANSWER = 64 * 1024 * KILOBYTE
"""Bytes of an answer that a client takes at all: no record of a topic is larger, but for topics set up so."""
QUESTION_S = 5.0
"""Seconds for the ends of a partition, or for the offsets of a time."""
M_ARENA_MAX = -8
"""glibc's name of that parameter (malloc.h)."""
ARENAS = 2
STEP_S = 0.5
"""Seconds of one wait, after which a refused login is noticed."""

log = logging.getLogger(__name__)


class Client:
    """One client of librdkafka. Its calls wait, so they run in a thread."""

    def __init__(self, settings: ConsoleSettings, token: str, **own: Any) -> None:
        import confluent_kafka  # 2 MB, which a console needs for records alone

        self._kafka = confluent_kafka
        self._refused: Any = None
        self._trouble: Any = None
        assert settings.gateway_address is not None
        self.properties: dict[str, Any] = {
            "bootstrap.servers": settings.gateway_address,
            "client.id": CLIENT_ID,
            "security.protocol": settings.gateway_protocol.value,
            "socket.connection.setup.timeout.ms": int(1000 * settings.records_timeout_s),
            "receive.message.max.bytes": LARGEST_ANSWER,
            "error_cb": self._heed,
            "logger": log,
            **own,
        }
        if settings.gateway_ca is not None and settings.gateway_protocol.encrypts:
            self.properties["ssl.ca.location"] = str(settings.gateway_ca)
        if settings.gateway_protocol.authenticates:
            expires = end_of(token) or time.time() + TOKEN_LIFE_S
            self.properties["sasl.mechanisms"] = "OAUTHBEARER"
            self.properties["oauth_cb"] = lambda _: (token, expires)

    def consumer(self, *, committed: bool, wait_ms: int = 10) -> Any:
        """In no group, although librdkafka needs the name of one, and asks for its coordinator: see `is_of_group`.

        `wait_ms`: the gateway waits so long for records that are not there yet.
        """
        return self._made(
            self._kafka.Consumer,
            {
                "group.id": CLIENT_ID,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "queued.max.messages.kbytes": QUEUE_KILOBYTES,
                "fetch.max.bytes": FETCH_BYTES,
                "message.max.bytes": FETCH_BYTES,
                "max.partition.fetch.bytes": FETCH_BYTES,
                "fetch.wait.max.ms": wait_ms,
                "fetch.queue.backoff.ms": 10,
            },
        )

    def producer(self, seconds: float) -> Any:
        """Sends a record once: by a retry it could be there twice, and idempotence would need one more right."""
        own = {"acks": "all", "retries": 0, "linger.ms": 0, "message.timeout.ms": int(1000 * seconds)}
        return self._made(self._kafka.Producer, {**own, "message.max.bytes": LARGEST_ANSWER})

    def partitions(self, consumer: Any, topic: str, deadline: float) -> list[int]:
        """The partitions of a topic; makes none. CallError: the gateway does not answer, or refuses."""
        found = self._metadata(consumer, topic, deadline).topics[topic]
        if found.error is not None:
            raise refusal(found.error, f"topic {topic!r}")
        return sorted(found.partitions)

    def place(self, topic: str, partition: int, offset: int | None = None) -> Any:
        """As librdkafka has it."""
        return self._kafka.TopicPartition(topic, partition, *(() if offset is None else (offset,)))

    def ends(self, consumer: Any, topic: str, partition: int) -> tuple[int, int]:
        """The first offset and the end of a partition. CallError."""
        place = self.place(topic, partition)
        found = self.ask(lambda: consumer.get_watermark_offsets(place, QUESTION_S), f"topic {topic!r}")
        return found[0], found[1]

    def chosen(self, consumer: Any, wanted: Wanted, deadline: float) -> list[int]:
        """The partitions of one look. CallError: the topic has not the one that is named, or has too many."""
        known = self.partitions(consumer, wanted.topic, deadline)
        check_partition(wanted.partition, known, f"topic {wanted.topic!r}")
        found = known if wanted.partition is None else [wanted.partition]
        if len(found) > MOST_PARTITIONS:
            raise wrong("partition", f"the topic has more than {MOST_PARTITIONS} partitions: name one")
        return found

    def ask(self, question: Callable[[], Any], about: str) -> Any:
        """The answer to a question. CallError."""
        try:
            return question()
        except self._kafka.KafkaException as error:
            raise refusal(self._refused or error.args[0], about) from None

    def check(self, about: str) -> None:
        """CallError: the gateway has refused the login."""
        if self._refused is not None:
            raise refusal(self._refused, about)

    @property
    def trouble(self) -> str:
        """The last that went wrong on the way to the gateway; empty if nothing did."""
        return "" if self._trouble is None else str(self._trouble.str())

    def _metadata(self, consumer: Any, topic: str, deadline: float) -> Any:
        """Asks in steps: a refused login is known by a callback alone, which needs a call between."""
        about = f"topic {topic!r}"
        while True:
            try:
                return consumer.list_topics(topic, timeout=STEP_S)
            except self._kafka.KafkaException as error:
                consumer.poll(0)
                self.check(about)
                if time.monotonic() >= deadline:
                    raise refusal(self._trouble or error.args[0], about) from None

    def _made(self, kind: Any, own: dict[str, Any]) -> Any:
        try:
            return kind({**self.properties, **own})
        except self._kafka.KafkaException as error:
            raise refusal(error.args[0], "the client of the gateway") from None

    def _heed(self, error: Any) -> None:
        is_summary = error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN
        if self._trouble is None or not is_summary:  # librdkafka counts its brokers behind the error that says why
            self._trouble = error
        if error.code() in (self._kafka.KafkaError._AUTHENTICATION, self._kafka.KafkaError._SSL):
            self._refused = error


def check_partition(partition: int | None, known: Sequence[int], about: str) -> None:
    """CallError: a partition is named that the topic has not."""
    if partition is not None and partition not in known:
        raise wrong("partition", f"{about} has the partitions 0 to {len(known) - 1}; {partition} is none")


def refusal(error: Any, about: str) -> CallError:
    """An error of librdkafka, or of a broker, for a page."""
    name, said = error.name(), error.str()
    ending = ENDINGS.get(name, Ending.REFUSED)
    advice = ADVICE.get(name, "")
    return CallError(ending, name, f"{about}: {said} ({name}).", (advice,) if advice else (), by=GATEWAY)


def few_arenas() -> None:
    """Before threads begin: each thread of librdkafka would get an arena of glibc, which keeps what was freed in it."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """After a look: glibc would keep the memory of its records for later ones."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def is_end(error: Any) -> bool:
    """Whether this is no error, but the word that a partition has no more records now."""
    return bool(error.name() == "_PARTITION_EOF")


def is_of_group(error: Any) -> bool:
    """Whether the gateway refuses the group, which no client of the console joins: the look goes on."""
    return bool(error.name() == "GROUP_AUTHORIZATION_FAILED")


ENDINGS = {
    "TOPIC_AUTHORIZATION_FAILED": Ending.NOT_ALLOWED,
    "CLUSTER_AUTHORIZATION_FAILED": Ending.NOT_ALLOWED,
    "SASL_AUTHENTICATION_FAILED": Ending.NOT_ALLOWED,
    "_AUTHENTICATION": Ending.NOT_ALLOWED,
    "UNKNOWN_TOPIC_OR_PART": Ending.ABSENT,
    "_UNKNOWN_TOPIC": Ending.ABSENT,
    "_UNKNOWN_PARTITION": Ending.ABSENT,
    "_TRANSPORT": Ending.AWAY,
    "_ALL_BROKERS_DOWN": Ending.AWAY,
    "_RESOLVE": Ending.AWAY,
    "_TIMED_OUT": Ending.AWAY,
    "_SSL": Ending.AWAY,
}
"""By the name of the error."""
_LOGIN = (
    "The gateway does not take your token: its TOKEN_ISSUERS must have the issuer and an audience of the token, and "
    "the token must not have ended."
)
ADVICE = {
    "_AUTHENTICATION": _LOGIN,
    "SASL_AUTHENTICATION_FAILED": _LOGIN,
    "TOPIC_AUTHORIZATION_FAILED": "An ACL must allow you the operation: Read to read, Write to write.",
    "_SSL": "Set GATEWAY_CA of the console to the authority of the gateway's certificate.",
}
