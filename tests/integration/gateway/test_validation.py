"""Real clients whose records break rules of validation: what they hear, what is stored, and how they go on."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownError
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import REGISTRY

from mesh.compression import Codec
from mesh.routing import ForwardingRule, NamePrefix
from mesh.schemas.framing import prefix_of
from mesh.schemas.registry import Registry
from mesh.validation import Compression, Key, Mode, Rule, ValueSchema
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_old_clients import OldClient
from tests.integration.gateway.transacting import Open, TransactionError, read_committed
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1

DAY_MS = 24 * 3600 * 1000


@dataclass
class House:
    """apples live on c1, pears on c2; apples may move."""

    gateway: RunningGateway
    rules: Rules
    apples: str
    pears: str
    c1: KafkaCluster
    c2: KafkaCluster

    def validate(self, *rules: Rule) -> None:
        self.gateway.follow(self.rules.validated(*rules))

    def count(self, metric: str) -> float:
        """Records of apples that rule zstd has counted."""
        labels = {"topic": self.apples, "rule": "zstd"}
        return REGISTRY.get_sample_value(f"kafka_mesh_gateway_{metric}_total", labels) or 0

    def stored(self) -> tuple[list[str], list[str]]:
        """apples on c1, pears on c2."""
        return read_all(self.c1.bootstrap, self.apples), read_all(self.c2.bootstrap, self.pears)


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
) -> House:
    name = f"validated-{uuid.uuid4().hex[:8]}"
    apples, pears = f"{name}-apples", f"{name}-pears"
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, apples, 1)
        create_topic(cluster, pears, 1)
    rules.to("c1", [apples])
    return House(start_gateway(rules.to("c2", [pears])), rules, apples, pears, kafka_c1, kafka_c2)


def zstd(topic: str, mode: Mode = Mode.ENFORCE) -> Rule:
    return Rule("zstd", topic, mode=mode, compression_types=(Compression.ZSTD,))


def told(bootstrap: str, *records: tuple[str, str, int], **config: object) -> list[str]:
    """Topic, value and time (0: now) of each record -> the name of its error, or its value."""
    heard: dict[str, str] = {}
    properties = {"bootstrap.servers": bootstrap, "linger.ms": 0, "message.timeout.ms": 60_000, **config}
    producer = Producer(properties)

    def delivered(value: str, error: KafkaError | None, _: Message) -> None:
        heard[value] = error.name() if error else value

    for topic, value, timestamp in records:
        producer.produce(topic, value, timestamp=timestamp, on_delivery=partial(delivered, value))
        producer.poll(0)
    assert producer.flush(60) == 0
    return [heard[value] for _, value, _ in records]


@pytest.mark.parametrize("idempotent", [False, True])
def test_librdkafka_hears_of_a_bad_batch_once_and_good_ones_beside_it_are_stored(
    house: House, idempotent: bool
) -> None:
    house.validate(zstd(house.apples))
    records = (house.apples, "bad", 0), (house.pears, "good", 0)
    config = {"enable.idempotence": idempotent}
    began = time.monotonic()
    assert told(house.gateway.address, *records, **config) == ["INVALID_RECORD", "good"]
    assert time.monotonic() - began < 30, "it was told at once, and did not try again"
    assert house.stored() == ([], ["good"])
    zstd_too = {"compression.type": "zstd", **config}
    # librdkafka sends records plain if they do not get smaller
    assert told(house.gateway.address, (house.apples, "small", 0), **zstd_too) == ["INVALID_RECORD"]
    long = "x" * 10_000
    assert told(house.gateway.address, (house.apples, long, 0), **zstd_too) == [long]
    assert house.stored()[0] == [long]


async def test_aiokafka_hears_of_a_bad_batch_and_does_not_send_it_again(house: House) -> None:
    house.validate(zstd(house.apples))
    for idempotent in (False, True):
        producer = AIOKafkaProducer(bootstrap_servers=house.gateway.address, enable_idempotence=idempotent)
        await producer.start()
        try:
            began = time.monotonic()
            with pytest.raises(UnknownError):  # it has no name for INVALID_RECORD
                await producer.send_and_wait(house.apples, b"bad")
            assert time.monotonic() - began < 30
        finally:
            await producer.stop()
    assert house.stored()[0] == []


async def test_javas_producer_hears_the_reason(house: House, tmp_path: Path) -> None:
    house.validate(zstd(house.apples))
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=5\n")
    tools = ConsoleTools(house.gateway.address)
    options = ("--max-messages", "3", "--command-config", str(config))
    printed = await tools.run(Tool.VERIFIABLE_PRODUCER, "--topic", house.apples, *options)
    failed = [each for each in map(json.loads, printed.splitlines()) if each["name"] == "producer_send_error"]
    assert len(failed) == 3
    assert {each["exception"] for each in failed} == {"class org.apache.kafka.common.InvalidRecordException"}
    assert "compression.type is none, and has to be zstd (rule 'zstd' of the mesh)" in failed[0]["message"]
    assert house.stored()[0] == []
    config.write_text("compression.type=zstd\n")
    printed = await tools.run(Tool.VERIFIABLE_PRODUCER, "--topic", house.apples, *options)
    assert "producer_send_error" not in printed
    assert sorted(house.stored()[0]) == ["0", "1", "2"]


async def test_javas_idempotent_producer_goes_on_after_refused_batches(house: House, tmp_path: Path) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=5\nlinger.ms=0\n")
    options = ("--max-messages", "400", "--throughput", "50", "--command-config", str(config))
    tools = ConsoleTools(house.gateway.address)
    run = asyncio.create_task(tools.run(Tool.VERIFIABLE_PRODUCER, "--topic", house.apples, *options))
    await asyncio.to_thread(wait_until, lambda: len(house.stored()[0]) >= 20, "the producer writes", 60)
    await asyncio.to_thread(house.validate, zstd(house.apples))
    await asyncio.to_thread(wait_until, lambda: house.count("refused_records") >= 20, "batches are refused", 60)
    await asyncio.to_thread(house.validate)
    sent = [json.loads(line) for line in (await run).splitlines()]
    acknowledged = [each["value"] for each in sent if each["name"] == "producer_send_success"]
    failed = {each["exception"] for each in sent if each["name"] == "producer_send_error"}
    assert failed == {"class org.apache.kafka.common.InvalidRecordException"}
    assert acknowledged[-1] == "399"
    assert house.stored()[0] == acknowledged


async def test_javas_producer_cuts_a_batch_that_is_too_large_and_all_is_stored(house: House) -> None:
    house.validate(Rule("small", house.apples, max_message_bytes=2_000))
    await ConsoleTools(house.gateway.address).run(
        Tool.PRODUCER_PERF_TEST, "--topic", house.apples, "--num-records", "500", "--record-size", "100",
        "--throughput", "-1", "--command-property", "linger.ms=50", "batch.size=16384",
    )  # fmt: skip
    assert len(house.stored()[0]) == 500


def test_a_producer_goes_on_after_a_refused_batch_as_before_a_broker_that_refuses_it(
    house: House, kafka_c1: KafkaCluster
) -> None:
    """Good and bad batches of one idempotent producer are on their way at once."""
    late = int(time.time() * 1000) + 2 * DAY_MS
    direct = f"{house.apples}-direct"
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    limit = {"message.timestamp.after.max.ms": str(DAY_MS)}
    admin.create_topics([NewTopic(direct, 1, 1, config=limit)])[direct].result(30)
    try:
        await_leaders(admin, direct, 1)
        house.validate(Rule("times", house.apples, message_timestamp_after_max_ms=DAY_MS))
        config = {"enable.idempotence": True, "batch.num.messages": 1}
        for bootstrap, topic in ((kafka_c1.bootstrap, direct), (house.gateway.address, house.apples)):
            records = [(topic, str(number), late if number % 10 == 5 else 0) for number in range(40)]
            heard = told(bootstrap, *records, **config)
            assert heard[5::10] == ["INVALID_TIMESTAMP"] * 4
            good = [value for value in heard if value.isdigit()]
            assert sorted(read_all(kafka_c1.bootstrap, topic), key=int) == good
            assert good == [value for _, value, at in records if not at]
    finally:
        admin.delete_topics([direct])[direct].result(30)


def test_a_transaction_with_a_refused_batch_is_aborted_and_the_next_one_commits(
    house: House, open_producer: Open
) -> None:
    house.validate(zstd(house.apples))
    producer = open_producer(house.gateway.address, f"{house.apples}-id", compression_type="none")
    producer.init()
    producer.begin()
    producer.send(house.pears, "not committed")
    assert producer.flush() == []
    producer.send(house.apples, "bad")
    assert [name.rpartition(".")[2] for name in producer.flush()] in (["INVALID_RECORD"], ["InvalidRecordException"])
    with pytest.raises(TransactionError) as refused:
        producer.commit()
    assert not refused.value.fatal
    producer.abort()
    producer.begin()
    producer.send(house.pears, "committed")
    producer.commit()
    producer.close()
    assert read_committed(house.c1.bootstrap, house.apples) == []
    assert read_committed(house.c2.bootstrap, house.pears) == ["committed"]


def test_a_topic_that_moves_is_validated_before_and_after(house: House) -> None:
    house.validate(zstd(house.apples))
    address, long = house.gateway.address, "x" * 10_000
    assert told(address, (house.apples, "bad", 0)) == ["INVALID_RECORD"]
    assert told(address, (house.apples, f"1{long}", 0), **{"compression.type": "zstd"}) == [f"1{long}"]
    house.gateway.move(house.rules.to("c2", [house.apples]))
    assert told(address, (house.apples, "bad", 0)) == ["INVALID_RECORD"]
    assert told(address, (house.apples, f"2{long}", 0), **{"compression.type": "zstd"}) == [f"2{long}"]
    assert read_all(house.c1.bootstrap, house.apples) == [f"1{long}"]
    assert read_all(house.c2.bootstrap, house.apples) == [f"2{long}"]


def test_a_producer_without_the_acks_that_a_rule_asks_for_stores_nothing(house: House) -> None:
    house.validate(Rule("safe", house.apples, acks_all=True))
    assert told(house.gateway.address, (house.apples, "bad", 0), acks=1) == ["INVALID_REQUIRED_ACKS"]
    told(house.gateway.address, (house.apples, "unheard", 0), acks=0)
    assert told(house.gateway.address, (house.apples, "good", 0), acks="all") == ["good"]
    assert house.stored()[0] == ["good"]


def test_a_rule_that_observes_stores_and_counts_and_a_topic_without_a_rule_is_forwarded(house: House) -> None:
    house.validate(zstd(house.apples, Mode.OBSERVE))
    assert told(house.gateway.address, (house.apples, "stored", 0)) == ["stored"]
    assert house.stored()[0] == ["stored"]
    wait_until(lambda: house.count("observed_records") == 1, "the record is counted", 10)
    assert house.count("refused_records") == 0
    house.validate(zstd(house.apples))
    assert told(house.gateway.address, (house.apples, "refused", 0)) == ["INVALID_RECORD"]
    wait_until(lambda: house.count("refused_records") == 1, "the refused record is counted", 10)


def test_records_without_keys_are_refused_and_named_and_records_with_keys_are_stored(house: House) -> None:
    house.validate(Rule("keyed", house.apples, key=Key.REQUIRED, max_record_bytes=5_000))
    for codec in ("none", "zstd", "lz4", "snappy", "gzip"):
        config = {"compression.type": codec, "enable.idempotence": True}
        assert told(house.gateway.address, (house.apples, f"{codec} {'x' * 500}", 0), **config) == ["INVALID_RECORD"]
        produce(house.gateway.address, house.apples, [f"{codec} {'y' * 500}"], **config)
    assert len(house.stored()[0]) == 5
    assert told(house.gateway.address, (house.pears, "free", 0)) == ["free"]


def schema(topic: str, condition: ValueSchema, *, stores_unchecked: bool = False) -> Rule:
    return Rule("schema", topic, value_schema=condition, stores_unchecked=stores_unchecked)


def value_of(schema_id: int, text: str) -> str:
    """A value as Confluent's serializers write it, of an Avro string."""
    return (prefix_of(schema_id) + bytes([2 * len(text)]) + text.encode()).decode("latin-1")


def answers(house: House, *values: str) -> list[str]:
    """For each value the name of its error, or "stored"."""
    heard: list[str] = []
    producer = Producer({"bootstrap.servers": house.gateway.address, "linger.ms": 0, "message.timeout.ms": 4000})
    for value in values:
        producer.produce(
            house.apples,
            value.encode("latin-1"),
            on_delivery=lambda error, _: heard.append(error.name() if error else "stored"),
        )
        assert producer.flush(60) == 0
    return heard


def test_a_value_names_a_registered_schema_of_its_subject(
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    schema_registry: SchemaRegistry,
    tmp_path: Path,
) -> None:
    apples = f"validated-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_c1, apples, 1)
    own = schema_registry.register(f"{apples}-value", '"string"')
    foreign = schema_registry.register("another-value", '"bytes"')
    gateway = start_gateway(rules.to("c1", [apples]), schema_registry_url=schema_registry.url)
    house = House(gateway, rules, apples, "", kafka_c1, kafka_c2)
    good, other, unknown = (value_of(each, "a") for each in (own, foreign, 99_999))
    bare = "plain"

    house.validate(schema(apples, ValueSchema.SUBJECT))
    refused = "INVALID_RECORD"
    assert answers(house, good, other, unknown, bare) == ["stored", refused, refused, refused]
    house.validate(schema(apples, ValueSchema.ANY))
    assert answers(house, good, other, unknown, bare) == ["stored", "stored", refused, refused]

    gone = Registry("http://127.0.0.1:9")
    gateway.gateway.mesh.memory.data_keys._registry = gone  # type: ignore[attr-defined]
    house.validate(schema(apples, ValueSchema.SUBJECT))
    new = value_of(schema_registry.register(f"{apples}-value", '"long"'), "b")
    assert answers(house, good, new) == ["stored", "_MSG_TIMED_OUT"], "what was known counts; the rest has to wait"
    house.validate(schema(apples, ValueSchema.SUBJECT, stores_unchecked=True))
    assert answers(house, new, bare) == ["stored", refused]


def test_a_policy_for_names_counts_for_what_clients_create_by_tools_and_by_writing(house: House) -> None:
    prefix = house.apples.removesuffix("-apples")
    house.rules.put(ForwardingRule("made", NamePrefix(prefix), "c1"))
    regex = f"{prefix}[.]pay[.][a-z]+"
    house.validate(Rule("names", prefix, is_prefix=True, new_name_regex=regex, principals=("User:ANON*",)))
    admin = AdminClient({"bootstrap.servers": house.gateway.address})
    good, bad = f"{prefix}.pay.in", f"{prefix}.pay.IN"
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(bad, 1, 1)])[bad].result(30)
    error = refused.value.args[0]
    assert error.name() == "TOPIC_EXCEPTION"
    has_to_match = f"has to match the regular expression {regex} (rule 'names' of the mesh)"
    assert error.str() == f"Invalid topic: the name of a new topic {has_to_match}"
    admin.create_topics([NewTopic(good, 1, 1)])[good].result(30)
    assert told(house.gateway.address, (good, "a", 0), (f"{prefix}.pay.out", "b", 0)) == ["a", "b"]
    assert told(house.gateway.address, (f"{prefix}.PAY", "c", 0)) == ["TOPIC_EXCEPTION"]
    there = AdminClient({"bootstrap.servers": house.c1.bootstrap}).list_topics(timeout=30).topics
    assert {name for name in there if name.startswith(f"{prefix}.")} == {good, f"{prefix}.pay.out"}
    labels = {"rule": "names"}
    assert (REGISTRY.get_sample_value("kafka_mesh_gateway_refused_topics_total", labels) or 0) >= 2


def test_an_old_client_hears_that_its_message_format_is_refused(house: House) -> None:
    house.validate(Rule("new", house.apples, message_format_v2=True))
    with closing(OldClient(house.gateway.address)) as client:
        for version, messages, code in ((2, MAGIC_1, 43), (0, MAGIC_0, -1)):
            sets = (house.apples, messages[Codec.GZIP]), (house.pears, messages[Codec.GZIP])
            (refused, error, _), (_, stored, _) = client.produce(version, *sets)
            assert (refused, error, stored) == (house.apples, code, 0)
    assert told(house.gateway.address, (house.apples, "new", 0)) == ["new"]
    assert read_all(house.c1.bootstrap, house.apples) == ["new"]
