"""A gateway deletes shadow topics whose topic is gone, and no other topic."""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from services.gateway.downstream import sweeping
from services.gateway.requests.groups import shadow_sweep
from services.gateway.requests.groups.shadow_topics import MARK
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.running import Rules

ANSWER_S = 60.0


def made(cluster: KafkaCluster, topic: str, *, marked: bool) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = dict([MARK]) if marked else {}
    admin.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(ANSWER_S)
    await_leaders(admin, topic, 2)
    return topic


def topics_of(cluster: KafkaCluster) -> Callable[[], set[str]]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return lambda: set(admin.list_topics(timeout=ANSWER_S).topics)


def test_a_shadow_is_deleted_when_its_topic_is_gone(
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    rules: Rules,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "SHADOWS_PAUSE_S", 0.2)
    monkeypatch.setattr(shadow_sweep, "GONE_S", 1.0)
    name = f"shadows-{uuid.uuid4().hex[:8]}"
    orphan, lasting, unmarked, written, later = (f"{name}-{n}" for n in ("orphan", "lasting", "bare", "full", "later"))
    rules.to("c2", [orphan, lasting, unmarked, written, later])
    for topic in (orphan, lasting, written, later):
        made(kafka_c1, topic, marked=True)
    made(kafka_c1, unmarked, marked=False)
    for topic in (lasting, later):
        made(kafka_c2, topic, marked=False)
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
    producer.produce(written, b"left behind", partition=1)
    assert producer.flush(ANSWER_S) == 0
    there = topics_of(kafka_c1)

    start_gateway(rules.table)
    wait_until(lambda: orphan not in there(), "the shadow without its topic is deleted")
    admin = AdminClient({"bootstrap.servers": kafka_c2.bootstrap})
    admin.delete_topics([later])[later].result(ANSWER_S)
    wait_until(lambda: later not in there(), "so is one whose topic is deleted now")
    assert {lasting, unmarked, written} <= there()
