"""Sets the offsets of a group that has members.

Brokers take a commit without a member only while the group is empty. Offsets of a transaction need no member: older
producers name none (KIP-447). So an empty transaction with the group's offsets sets them beside the members.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from services.control.upstream.groups import GroupRefusedError

TIMEOUT_S = 4.0
"""Seconds for one step of a transaction."""


class MemberOffsets:
    """One transactional producer, made when the first group needs it. Each call blocks; threads take turns."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str) -> None:
        self._settings = settings
        self._transactional_id = transactional_id
        self._producer: Producer | None = None
        self._turn = threading.Lock()

    def set(self, group: str, wanted: Sequence[TopicPartition]) -> None:
        """GroupRefusedError when the cluster refuses."""
        with self._turn:
            try:
                self._set(group, wanted)
            except KafkaException as error:
                self._give_up()
                raise GroupRefusedError(
                    f"it has members there, and a transaction fails: {error.args[0].str()}"
                ) from error

    def _set(self, group: str, wanted: Sequence[TopicPartition]) -> None:
        if self._producer is None:
            producer = Producer({**self._settings, "transactional.id": self._transactional_id})
            producer.init_transactions(TIMEOUT_S)
            self._producer = producer
        nobody = Consumer({**self._settings, "group.id": group})
        try:
            self._producer.begin_transaction()
            self._producer.send_offsets_to_transaction([*wanted], nobody.consumer_group_metadata(), TIMEOUT_S)
            self._producer.commit_transaction(TIMEOUT_S)
        finally:
            nobody.close()

    def _give_up(self) -> None:
        """The next call begins with a producer of its own, which ends the transaction of this one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.abort_transaction(TIMEOUT_S)
