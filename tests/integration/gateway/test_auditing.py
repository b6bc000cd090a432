"""A gateway that audits: each record of the topics that are named, once, with its ids and its offset."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from mesh.validation import Compression, Rule
from services.gateway.downstream import audit_trail
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.traffic import LAST_REPORT_S, ToldTraffic, read_whole_topic
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, DeleteTopic, StartGateway
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules

COUNT = 40
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def audit_topic(
    unique_name: Callable[[str], str],
    delete_topic: DeleteTopic,
    kafka_c1: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """A gateway that stops has as much time for its last audit records as for its last report."""
    monkeypatch.setattr(audit_trail, "END_S", LAST_REPORT_S)
    name = unique_name("mesh.audit-records")
    yield name
    delete_topic(kafka_c1, name)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_each_record_of_a_named_topic_is_told_once_with_its_ids_and_offset(
    codec: str,
    told_traffic: ToldTraffic,
    audit_topic: str,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
) -> None:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    settings = {"audit_topics": (f"{bananas[:-1]}*",), "audit_records_topic": audit_topic}
    gateway = start_gateway(rules.to("c2", [bananas]), **settings, **told_traffic.settings)
    produce(gateway.address, apples, ["not", "audited"])

    places: dict[str, tuple[int, int]] = {}
    producer = Producer({"bootstrap.servers": gateway.address, "compression.type": codec, "linger.ms": 20})
    for number in range(COUNT):
        headers: list[tuple[str, str | bytes | None]] = [
            ("X-Correlation-Id", f"c-{number}".encode()),
            ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),
        ]

        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None
            places[message.key().decode()] = (message.partition(), message.offset())

        producer.produce(bananas, "a payload", f"key-{number}", headers=headers, on_delivery=delivered)
    assert producer.flush(30) == 0
    gateway.close()

    told = [(key, json.loads(value)) for key, value in read_whole_topic(kafka_c1.bootstrap, audit_topic)]
    assert {event["key"]: (event["partition"], event["offset"]) for _, event in told} == places
    assert len(told) == len({event["id"] for _, event in told}) == COUNT
    for key, event in told:
        assert (event["serviceId"], event["auditType"], event["topic"]) == ("gateway-test", "PRODUCER", bananas)
        assert (event["auditStatus"], event["traceId"]) == ("SUCCESS", TRACE)
        assert event["correlationId"] == event["key"].replace("key-", "c-") == (key or b"").decode()
        assert "payload" not in json.dumps(event)


def test_a_record_that_its_broker_refuses_is_told_with_the_reason(
    told_traffic: ToldTraffic,
    audit_topic: str,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c2: KafkaCluster,
    bananas: str,
) -> None:
    create_topic(kafka_c2, bananas, 1)
    admin = AdminClient({"bootstrap.servers": kafka_c2.bootstrap})
    entry = ConfigEntry("max.message.bytes", "500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, bananas, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    described = ConfigResource(ResourceType.TOPIC, bananas)
    wait_until(
        lambda: admin.describe_configs([described])[described].result(30)["max.message.bytes"].value == "500",
        "the broker has heard of the setting",
    )
    settings = {"audit_topics": (bananas,), "audit_records_topic": audit_topic}
    gateway = start_gateway(rules.to("c2", [bananas]), **settings, **told_traffic.settings)
    producer = Producer({"bootstrap.servers": gateway.address})
    faults: list[KafkaError | None] = []
    producer.produce(bananas, "x" * 1000, "too-large", on_delivery=lambda error, _: faults.append(error))
    assert producer.flush(30) == 0
    gateway.close()

    assert [fault and fault.code() for fault in faults] == [KafkaError.MSG_SIZE_TOO_LARGE]
    (told,) = read_whole_topic(told_traffic.bootstrap, audit_topic)
    event = json.loads(told[1])
    assert (event["key"], event["auditStatus"], "offset" in event) == ("too-large", "FAILURE", False)
    assert event["stacktrace"].startswith("MESSAGE_TOO_LARGE")
    assert told_traffic.figures(api="Produce", topic=bananas).errors == 1


def test_refusals_are_told_although_no_topic_is_audited(
    told_traffic: ToldTraffic,
    audit_topic: str,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
) -> None:
    create_topic(kafka_c1, apples)
    rules.to("c1", [apples])
    table = rules.validated(Rule("zstd", apples, compression_types=(Compression.ZSTD,)))
    gateway = start_gateway(table, audit_records_topic=audit_topic, **told_traffic.settings)
    with pytest.raises(AssertionError, match="INVALID_RECORD"):
        produce(gateway.address, apples, ["plain"])
    gateway.close()
    [(_, value)] = read_whole_topic(kafka_c1.bootstrap, audit_topic)
    told = json.loads(value)
    assert (told["auditType"], told["auditStatus"], told["topic"]) == ("VALIDATION", "FAILURE", apples)
    assert told["key"] == "User:ANONYMOUS"
    assert told["stacktrace"].endswith("has to be zstd (rule 'zstd' of the mesh)")
