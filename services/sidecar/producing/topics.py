"""Asks whether a topic exists before its first record, so that a misspelt name gets an error at once.

librdkafka would hold such records for a while, because the topic may be about to appear. Here the caller waits for the
topic for a short time, and nothing is queued. A broker that creates topics by itself takes a moment; so does a rule
that adds a topic.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException, Producer

MAX_KNOWN = 10_000
"""The number of remembered topics. At a larger number all are forgotten, and asked for again one by one."""
FIRST_PAUSE_SECONDS = 0.05
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE)
"""Errors of a missing topic. The last error means that the topic is being made."""


class Topics:
    """Asks on threads of its own, once for all callers with the same question. Its methods belong to the event loop."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._known: set[str] = set()
        self._closed = False
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._threads = ThreadPoolExecutor(2, "topic-look-up")

    def is_known(self, topic: str) -> bool:
        return topic in self._known

    async def exists(self, topic: str, client: Producer) -> bool:
        """False only if Kafka says that the topic is missing. Until Kafka answers, records may wait in the queue."""
        if topic in self._known:
            return True
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic, client))
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    def forget(self, topic: str) -> None:
        """Forgets a topic: it may be gone, or may have other partitions by now."""
        self._known.discard(topic)

    def close(self) -> None:
        """Asks nothing more; requests that run still get their answers."""
        self._closed = True
        self._threads.shutdown(wait=False)

    async def _ask(self, topic: str, client: Producer) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            found = await loop.run_in_executor(self._threads, _look_up, client, topic, self._patience)
            if found is None:
                return True
            if found not in _NOT_THERE:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known.add(topic)
                return True
            if self._closed or loop.time() + pause > deadline:
                return bool(found == KafkaError.LEADER_NOT_AVAILABLE)
            await asyncio.sleep(pause)
            pause *= 2


def _look_up(client: Producer, topic: str, timeout: float) -> int | None:
    """The topic's error code in the metadata (0: the topic exists); None when Kafka does not answer."""
    try:
        found = client.list_topics(topic, timeout=timeout).topics.get(topic)
    except (KafkaException, RuntimeError):  # no broker answers, or the client was closed meanwhile
        return None
    if found is None:
        return int(KafkaError._UNKNOWN_TOPIC)
    return 0 if found.error is None else int(found.error.code())
