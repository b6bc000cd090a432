"""Whether a topic exists, asked before the first record goes there: so a misspelt name is answered at once.

librdkafka would keep such records back for a while, as the topic may be on its way. Here the caller waits for that, a
little (a broker that creates topics by itself takes a moment, and so does a rule that adds one), and nothing is queued.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException, Producer

MAX_KNOWN = 10_000
"""Topics remembered. Beyond them all are forgotten, and asked for again one by one."""
FIRST_PAUSE_SECONDS = 0.05
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE)
"""The last one: it is being made."""


class Topics:
    """Asks on threads of its own, once for all who want to know the same. Its methods belong to the event loop."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._known: set[str] = set()
        self._closed = False
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._threads = ThreadPoolExecutor(2, "topic-look-up")

    def is_known(self, topic: str) -> bool:
        return topic in self._known

    async def exists(self, topic: str, client: Producer) -> bool:
        """False only when Kafka says so. While Kafka does not answer, records may wait for it in the queue."""
        if topic in self._known:
            return True
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic, client))
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    def forget(self, topic: str) -> None:
        """It may be gone, or have other partitions than we think."""
        self._known.discard(topic)

    def close(self) -> None:
        """What is being asked gets its answer; nothing more is asked."""
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
    """The error that metadata have for the topic (0: it is there); None when nobody answers."""
    try:
        found = client.list_topics(topic, timeout=timeout).topics.get(topic)
    except (KafkaException, RuntimeError):  # nobody there, or a client that was closed meanwhile
        return None
    if found is None:
        return int(KafkaError._UNKNOWN_TOPIC)
    return 0 if found.error is None else int(found.error.code())
