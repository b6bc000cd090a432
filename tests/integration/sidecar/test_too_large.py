"""Dead letters and replies that are too large for Kafka hold up no partition, and no backend is asked again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fixtures.backend import Backend, answer_of
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.reactive_world import reading, wait_for_commit
from tests.integration.sidecar.world import Kafka, PlainRecord

NEAR_THE_LIMIT = 1_048_400
"""Bytes of a value that Kafka takes, and with the headers of a dead letter does not."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def refusing(backend: Backend) -> None:
    backend.always(answer_of(lambda _: {"status": "DEAD_LETTER", "stacktrace": "x" * 4096}))


def limited(kafka: Kafka, topic: str, size: int) -> None:
    """A topic that takes so many bytes at most."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": str(size)})])
    made[topic].result(30)
    await_leaders(admin, topic, 1)


def delivering(topic: str, exactly_once: bool) -> dict[str, Any]:
    """The settings of the consumer."""
    return {"reactive_exactly_once": True, "reactive_transactional_id": topic} if exactly_once else {}


def said_by(letter: PlainRecord) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in letter.headers}


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_record_near_the_limit_becomes_a_dead_letter_without_its_value(
    kafka: Kafka, backend: Backend, orders: str, group: str, *, exactly_once: bool
) -> None:
    refusing(backend)
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 2 * NEAR_THE_LIMIT})
    writer.produce(orders, b"v" * NEAR_THE_LIMIT, b"k", partition=0)
    assert writer.flush(30) == 0
    kafka.write(orders, {"value": b"small", "partition": 0})
    with reading(kafka, backend, orders, group, request_max_bytes=8 << 20, **delivering(orders, exactly_once)):
        wait_for_commit(kafka, group, orders, 0, 2)
    letters = {letter.key: letter for letter in kafka.read(f"{orders}.dlq", None)}
    large, small = letters[b"k"], letters[None]
    facts = said_by(large)
    assert (large.value, facts["dlq.value.bytes"]) == (None, str(NEAR_THE_LIMIT))
    assert (facts["dlq.topic"], facts["dlq.partition"], facts["dlq.offset"]) == (orders, "0", "0")
    assert (small.value, len(said_by(small)["StackTrace"])) == (b"small", 4096)
    assert [len(call.records) for call in backend.calls].count(1) <= 2, "the backend is not asked again"


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_topic_of_dead_letters_with_a_limit_of_its_own_gets_what_fits(
    kafka: Kafka, backend: Backend, orders: str, group: str, *, exactly_once: bool
) -> None:
    refusing(backend)
    limited(kafka, f"{orders}.dlq", 2_000)
    kafka.write(orders, *({"key": b"k", "value": b"v" * size, "partition": 0} for size in (10, 5_000, 20)))
    with reading(kafka, backend, orders, group, reactive_max_batch_records=1, **delivering(orders, exactly_once)):
        wait_for_commit(kafka, group, orders, 0, 3)
    letters = kafka.read(f"{orders}.dlq", None)
    assert [len(letter.value or b"") for letter in letters] == [10, 0, 20]
    assert {len(said_by(letter)["StackTrace"]) for letter in letters} == {256}


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_reply_that_is_too_large_makes_its_record_a_dead_letter(
    kafka: Kafka, backend: Backend, orders: str, group: str, *, exactly_once: bool
) -> None:
    replies = f"{orders}-replies"
    limited(kafka, replies, 2_000)
    reply = {"topic": replies, "valueFormat": "string", "records": [{"value": "r" * 5_000}]}
    backend.always(answer_of(lambda one: {"produce": [reply]} if one["value"] == "large" else {}))
    kafka.write(orders, *({"key": b"k", "value": value, "partition": 0} for value in (b"large", b"none")))
    with reading(kafka, backend, orders, group, **delivering(orders, exactly_once)):
        wait_for_commit(kafka, group, orders, 0, 2)
    assert kafka.read(replies, None) == []
    (letter,) = kafka.read(f"{orders}.dlq", None)
    assert (letter.value, said_by(letter)["dlq.reason"]) == (b"large", "oversize")
    assert replies in said_by(letter)["StackTrace"]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_reply_that_is_too_large_is_given_up_if_dead_letters_are_switched_off(
    kafka: Kafka, backend: Backend, orders: str, group: str, *, exactly_once: bool
) -> None:
    replies = f"{orders}-replies"
    limited(kafka, replies, 2_000)
    large = {"topic": replies, "valueFormat": "string", "records": [{"value": "r" * 5_000}]}
    small = {"topic": replies, "valueFormat": "string", "records": [{"value": "small"}]}
    backend.always(answer_of(lambda one: {"produce": [large if one["value"] == "large" else small]}))
    kafka.write(orders, *({"key": b"k", "value": value, "partition": 0} for value in (b"large", b"next")))
    with reading(kafka, backend, orders, group, dead_letter_enabled=False, **delivering(orders, exactly_once)):
        wait_for_commit(kafka, group, orders, 0, 2)
    assert [reply.value for reply in kafka.read(replies, None)] == [b"small"]
    assert [len(call.records) for call in backend.calls].count(2) <= 1, "the backend is not asked again"


def test_topics_of_dead_letters_are_made_at_the_start_with_the_partitions_of_their_topics(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    kafka.write(orders, {"value": b"one", "partition": 0})
    with reading(kafka, backend, orders, group):
        wait_for_commit(kafka, group, orders, 0, 1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    wait_until(lambda: f"{orders}.dlq" in admin.list_topics(timeout=30).topics, "the topic is there")
    await_leaders(admin, f"{orders}.dlq", 2)  # as many as its topic has
