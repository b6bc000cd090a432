"""Makes the topic of dead letters before the first one: with as many partitions as the topic that it belongs to."""

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.sidecar.dead_letters.record import dead_letter_topic

ASK_SECONDS = 10.0
"""Bound of each question to Kafka."""

log = structlog.get_logger(__name__)


class LetterTopics:
    """The topics for the dead letters of one consumer."""

    def __init__(self, properties: dict[str, Any], extension: str) -> None:
        """`properties`: those of a plain Kafka client."""
        self._properties = {**properties, "allow.auto.create.topics": False}
        self._extension = extension

    async def make_missing(self, sources: Iterable[str]) -> None:
        """Makes the missing topics for the dead letters of these topics.

        If Kafka refuses, the log names the topic and the remedy, and the consumer goes on: it needs the topic only for
        a dead letter.
        """
        try:
            await asyncio.to_thread(self._make_missing, sorted(set(sources)))
        except KafkaException as failure:
            log.warning("it is unknown whether there are topics for dead letters", reason=failure.args[0].str())

    def _make_missing(self, sources: list[str]) -> None:
        admin = AdminClient(self._properties)
        there = {
            name: len(topic.partitions)
            for name, topic in admin.list_topics(timeout=ASK_SECONDS).topics.items()
            if topic.error is None
        }
        missing = {letters: there[one] for one in sources if one in there and (letters := self._of(one)) not in there}
        if not missing:
            return
        wanted = [NewTopic(name, partitions) for name, partitions in missing.items()]
        for name, made in admin.create_topics(wanted, request_timeout=ASK_SECONDS).items():
            try:
                made.result(ASK_SECONDS)
                log.info("topic of dead letters made", topic=name, partitions=missing[name])
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another replica was first
                    log.error(
                        "a topic of dead letters is missing and cannot be made: make it, or a dead letter holds up "
                        "its partition",
                        topic=name, partitions=missing[name], reason=failure.args[0].str(),
                    )  # fmt: skip

    def _of(self, source: str) -> str:
        return dead_letter_topic(source, self._extension)
