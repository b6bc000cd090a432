"""Real clients of topics with rules of protection: what the clusters store, and what readers and all others get."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh.compression import Codec
from mesh.protection.envelope import Envelope
from mesh.protection.rule import Others, Rule, What
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.stitches import LogPart, StitchedLog
from mesh.user_files import Users, written
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.transit import transit
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_old_clients import OldClient
from tests.integration.gateway.transacting import LibrdkafkaTransacting
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1

MECHANISM = "SCRAM-SHA-256"
PASSWORD = "an integration test's own password"
READER, OTHER = "crm", "clerk"
KEPT_S = 4.0
"""How long the gateway keeps data keys in these tests."""
ORDER = '{ "id": 7, "customer": {"email": "ann@example.org", "score": 1.10}, "note": "caf\\u00e9" }'
MASKED = ORDER.replace('"ann@example.org"', '"***"')
SECRET = "ann@example.org"


def key_line(key_id: str, version: int) -> str:
    return f"{key_id} {version} {base64.b64encode(secrets.token_bytes(32)).decode()}\n"


@dataclass
class House:
    """orders live on c1, cards on c2; both may move."""

    gateway: RunningGateway
    rules: Rules
    orders: str
    cards: str
    c1: KafkaCluster
    c2: KafkaCluster
    keys: Path
    folder: Path

    @property
    def bootstrap(self) -> str:
        return self.gateway.address.rpartition("//")[2]

    def protect(self, *rules: Rule) -> None:
        self.gateway.follow(self.rules.protected(*rules))

    def emails(self, **more: Any) -> Rule:
        return Rule("pii", self.orders, **{**self._fields, **more})

    @property
    def _fields(self) -> dict[str, Any]:
        return {
            "what": What.JSON, "fields": ("customer.email",), "key_id": "pii", "readers": (f"User:{READER}",)
        }  # fmt: skip

    def whole(self, **more: Any) -> Rule:
        return Rule("cards", self.cards, **{"key_id": "cards", "readers": (f"User:{READER}",), **more})

    def confluent(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORD,
            **more,
        }

    def aiokafka(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORD,
        }

    def java(self, user: str) -> Path:
        login = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{PASSWORD}";'
        )
        config = self.folder / f"{user}.properties"
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\nsasl.jaas.config={login}\n")
        return config

    def write(self, topic: str, *values: str | bytes | None, **config: Any) -> list[str]:
        """The name of each record's error, or ""."""
        heard: list[str] = []
        producer = Producer(self.confluent(OTHER, **{"linger.ms": 0, "message.timeout.ms": 60_000, **config}))
        for value in values:
            producer.produce(
                topic, value, "key", on_delivery=lambda error, _: heard.append(error.name() if error else "")
            )
            assert producer.flush(90) == 0
        return heard

    def written_by_version(self, version: int, value: str) -> bool:
        """Writes an order; whether its data key is wrapped by this version of the key in the file."""
        assert self.write(self.orders, value) == [""]
        last = read_messages({"bootstrap.servers": self.c1.bootstrap}, self.orders, self.stored())[-1]
        wrapped = Envelope.read(headers_of(last)["mesh-protection"]).name.wrapped
        return int.from_bytes(wrapped[:4], "big") == version

    def stored(self) -> int:
        return len(read_all(self.c1.bootstrap, self.orders))

    def read(self, user: str, topic: str, count: int, **config: Any) -> list[Message]:
        return read_messages(self.confluent(user, **config), topic, count)

    def values(self, user: str, topic: str, count: int, **config: Any) -> list[str]:
        return [(each.value() or b"").decode("latin-1") for each in self.read(user, topic, count, **config)]

    def error(self, user: str, topic: str) -> KafkaError:
        """The error that a consumer of the topic hears before any record."""
        message = self.first(user, topic)
        error = message.error()
        assert error is not None, f"a record: {message.value()!r}"
        return error

    def first(self, user: str, topic: str) -> Message:
        """The first record or error that a consumer of the topic gets."""
        consumer = Consumer(self.confluent(user, **{"group.id": "g", "enable.partition.eof": True}))
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is not None:
                    return message
            raise AssertionError("neither a record nor an error")
        finally:
            consumer.close()


def read_messages(config: dict[str, Any], topic: str, count: int) -> list[Message]:
    """So many records of partition 0 from its beginning."""
    consumer = Consumer({"group.id": "g", "enable.auto.commit": False, **config})
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                found.append(message)
    finally:
        consumer.close()
    return found


def headers_of(message: Message) -> dict[str, Any]:
    return dict(headers_in(message))


def headers_in(message: Message) -> list[tuple[str, Any]]:
    return [*(message.headers() or ())]


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> House:
    name = unique_name("protected")
    orders, cards = f"{name}-orders", f"{name}-cards"
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, orders, 1)
        create_topic(cluster, cards, 1)
    keys, users = tmp_path / "keys", tmp_path / "users.yaml"
    keys.write_text(key_line("pii", 1) + key_line("cards", 1))
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES if each.value == MECHANISM}
    users.write_bytes(written(Users(dict.fromkeys((READER, OTHER), verifiers), b"s" * 32)))
    rules.to("c1", [orders])
    gateway = start_gateway(
        rules.to("c2", [cards]),
        listen=f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        sasl_mechanisms=(MECHANISM,),
        users_file=users,
        key_service=f"file:{keys}",
        data_keys_kept_s=KEPT_S,
    )
    return House(gateway, rules, orders, cards, kafka_c1, kafka_c2, keys, tmp_path)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_field_is_encrypted_on_the_cluster_clear_for_its_reader_and_masked_for_others(
    house: House, codec: str
) -> None:
    house.protect(house.emails())
    assert house.write(house.orders, ORDER, None, '{"id": 8}', **{"compression.type": codec}) == ["", "", ""]
    stored = read_messages({"bootstrap.servers": house.c1.bootstrap}, house.orders, 3)
    at_rest = json.loads(stored[0].value() or b"")
    assert at_rest["customer"]["email"].startswith("mesh:1:pii:")
    assert SECRET not in (stored[0].value() or b"").decode()
    assert "mesh-protection" in headers_of(stored[0])
    assert [each.value() for each in stored[1:]] == [None, b'{"id": 8}']
    clear = house.read(READER, house.orders, 3)
    assert [each.value() for each in clear] == [ORDER.encode(), None, b'{"id": 8}'], "byte for byte"
    assert [(each.offset(), each.key(), each.headers()) for each in clear] == [(n, b"key", None) for n in range(3)]
    masked = house.read(OTHER, house.orders, 3)
    assert [each.value() for each in masked] == [MASKED.encode(), None, b'{"id": 8}']
    assert headers_of(masked[0]) == {"mesh-masked": b"customer.email: you are no reader (rule pii)"}
    assert masked[2].headers() is None


def test_a_whole_value_is_bytes_on_the_cluster_and_others_get_ciphertext_if_the_rule_says_so(house: House) -> None:
    house.protect(house.whole())
    assert house.write(house.cards, "4111 1111", "4222 2222") == ["", ""]
    (first, second) = read_messages({"bootstrap.servers": house.c2.bootstrap}, house.cards, 2)
    assert b"4111" not in (first.value() or b"")
    assert house.values(READER, house.cards, 2) == ["4111 1111", "4222 2222"]
    assert house.values(OTHER, house.cards, 2) == ["***", "***"]
    house.protect(house.whole(others=Others.CIPHERTEXT))
    got = house.read(OTHER, house.cards, 2)
    assert [(each.value(), headers_of(each)) for each in got] == [
        (each.value(), headers_of(each)) for each in (first, second)
    ]


def test_a_client_that_the_rule_refuses_hears_so_also_of_an_empty_topic(house: House) -> None:
    house.protect(house.emails(others=Others.REFUSAL))
    with capture_logs() as logs:
        assert house.error(OTHER, house.orders).name() == "TOPIC_AUTHORIZATION_FAILED"
    told = [each for each in logs if each["event"] == "records are withheld from a client"]
    assert [(each["principal"], each["rule"], each["reason"]) for each in told] == [
        ("User:clerk", "pii", "the client is no reader")
    ]
    assert house.write(house.orders, ORDER) == [""]
    assert house.error(OTHER, house.orders).name() == "TOPIC_AUTHORIZATION_FAILED"
    assert house.values(READER, house.orders, 1) == [ORDER]


def test_what_a_rule_can_not_protect_is_refused_with_the_records_place_and_not_stored(house: House) -> None:
    house.protect(house.emails(requires_fields=True))
    assert house.write(house.orders, "no json", '{"id": 8}', ORDER) == ["INVALID_RECORD", "INVALID_RECORD", ""]
    assert len(read_all(house.c1.bootstrap, house.orders)) == 1
    labels = {"topic": house.orders, "rule": "pii", "way": "produce"}
    assert REGISTRY.get_sample_value("kafka_mesh_gateway_withheld_batches_total", labels) == 2
    house.protect(house.emails())
    producer = Producer(house.confluent(OTHER, **{"message.timeout.ms": 20_000}))
    heard: list[KafkaError | None] = []
    producer.produce(
        house.orders, ORDER, headers={"mesh-protection": b"mine"}, on_delivery=lambda error, _: heard.append(error)
    )
    assert producer.flush(60) == 0
    assert [error.name() for error in heard if error] == ["INVALID_RECORD"]


async def test_javas_and_aiokafkas_clients_write_and_read(house: House) -> None:
    house.protect(house.emails())
    tools = ConsoleTools(house.bootstrap)
    java = ("--topic", house.orders, "--command-config", str(house.java(READER)))
    await tools.run(Tool.CONSOLE_PRODUCER, *java, stdin=ORDER + "\n")
    producer = AIOKafkaProducer(**house.aiokafka(OTHER), enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait(house.orders, ORDER.encode())
    await producer.stop()
    stored = await asyncio.to_thread(read_all, house.c1.bootstrap, house.orders)
    assert len(stored) == 2
    assert not any(SECRET in each for each in stored)
    options = (*java, "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    assert (await tools.run(Tool.CONSOLE_CONSUMER, *options)).splitlines() == [ORDER] * 2
    masked = ("--topic", house.orders, "--command-config", str(house.java(OTHER)), *options[4:])
    assert (await tools.run(Tool.CONSOLE_CONSUMER, *masked)).splitlines() == [MASKED] * 2
    for user, value in ((READER, ORDER), (OTHER, MASKED)):
        consumer = AIOKafkaConsumer(house.orders, **house.aiokafka(user), auto_offset_reset="earliest")
        await consumer.start()
        try:
            assert [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(2)] == [value.encode()] * 2
        finally:
            await consumer.stop()


def test_new_versions_of_a_key_wrap_and_older_ones_unwrap_until_they_are_taken_out(house: House) -> None:
    house.protect(house.emails())
    first = ORDER
    assert house.write(house.orders, first) == [""]
    one = house.keys.read_text()
    house.keys.write_text(one + key_line("pii", 2))
    second = ORDER.replace("7", "8")
    wait_until(lambda: house.written_by_version(2, second), "a data key is wrapped by the new version", 3 * KEPT_S)
    count = house.stored()
    assert house.values(READER, house.orders, count) == [first, *[second] * (count - 1)]
    house.keys.write_text("".join(line for line in house.keys.read_text().splitlines(True) if "pii 1" not in line))
    wait_until(lambda: house.values(READER, house.orders, 1) == [MASKED], "a destroyed key serves no more", 3 * KEPT_S)
    masked, *_, clear = house.read(READER, house.orders, count)
    assert clear.value() == second.encode()
    assert masked.value() == MASKED.encode()
    assert headers_of(masked) == {"mesh-masked": b"customer.email: version 1 of key 'pii' is gone (rule pii)"}


def test_a_key_that_is_gone_makes_its_values_unreadable_and_new_ones_impossible(house: House) -> None:
    house.protect(house.emails(), house.whole(others=Others.REFUSAL))
    assert house.write(house.orders, ORDER) == [""]
    assert house.write(house.cards, "4111") == [""]
    assert house.values(READER, house.cards, 1) == ["4111"]
    house.keys.write_text(key_line("other", 1))
    wait_until(lambda: house.write(house.orders, ORDER) == ["INVALID_RECORD"], "refused", 3 * KEPT_S)
    wait_until(lambda: house.values(READER, house.orders, 1) == [MASKED], "a destroyed key serves no more", 3 * KEPT_S)
    (masked, *_) = house.read(READER, house.orders, 1)
    assert (masked.value(), headers_of(masked)) == (
        MASKED.encode(),
        {"mesh-masked": b"customer.email: key 'pii' is gone (rule pii)"},
    )
    error = wait_until(lambda: house.first(READER, house.cards).error(), "no reader gets a card", 3 * KEPT_S)
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"


def test_while_the_key_file_is_missing_nothing_is_stored_and_readers_hear_of_it(house: House) -> None:
    house.protect(house.emails())
    assert house.write(house.orders, ORDER) == [""]
    assert house.values(READER, house.orders, 1) == [ORDER]
    away = house.keys.rename(house.keys.with_suffix(".away"))
    assert house.values(READER, house.orders, 1) == [ORDER], "keys that the gateway has serve on"
    error = wait_until(lambda: house.first(READER, house.orders).error(), "kept keys serve no more", 3 * KEPT_S)
    assert error.name() == "UNKNOWN", "not silence, and no mask: the key is not gone"
    assert house.write(house.orders, ORDER, **{"message.timeout.ms": 3_000}) == ["_MSG_TIMED_OUT"]
    assert house.values(OTHER, house.orders, 1) == [MASKED], "masks need no key"
    assert len(read_all(house.c1.bootstrap, house.orders)) == 1
    consumer = Consumer(house.confluent(READER, **{"group.id": "g"}))
    try:
        consumer.assign([TopicPartition(house.orders, 0, 0)])
        waiting = consumer.poll(10)
        assert waiting is not None
        assert waiting.error() is not None
        away.rename(house.keys)
        found: list[bytes | None] = []

        def has_record() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value())
            return bool(found)

        wait_until(has_record, "the record")
        assert found == [ORDER.encode()], "the same consumer goes on by itself"
    finally:
        consumer.close()


def test_fields_of_avro_by_confluents_serializers_and_a_real_registry(
    house: House, schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    gateway = start_gateway_beside(house, tmp_path, schema_registry_url=schema_registry.url)
    rule = Rule("avro", house.orders, what=What.AVRO, fields=("email",), key_id="pii", readers=(f"User:{READER}",))
    try:
        gateway.follow(house.rules.protected(rule))
        house.gateway = gateway
        schema = json.dumps(
            {
                "type": "record",
                "name": "Customer",
                "fields": [{"name": "id", "type": "int"}, {"name": "email", "type": ["null", "string"]}],
            }
        )
        client = SchemaRegistryClient({"url": schema_registry.url, "timeout": 30})
        serialize = AvroSerializer(client, schema)
        context = SerializationContext(house.orders, MessageField.VALUE)
        value = serialize({"id": 7, "email": SECRET}, context)
        assert house.write(house.orders, value, "no avro") == ["", "INVALID_RECORD"]
        (stored,) = read_messages({"bootstrap.servers": house.c1.bootstrap}, house.orders, 1)
        deserialize = AvroDeserializer(client)
        at_rest = deserialize(stored.value(), context)
        assert at_rest["id"] == 7
        assert at_rest["email"].startswith("mesh:1:pii:"), "and it is of its schema"
        assert house.read(READER, house.orders, 1)[0].value() == value
        assert deserialize(house.read(OTHER, house.orders, 1)[0].value(), context) == {"id": 7, "email": "***"}
    finally:
        gateway.close()


def start_gateway_beside(house: House, folder: Path, **settings: Any) -> RunningGateway:
    """Another gateway of the mesh, with the same users and keys."""
    own = {
        "listen": f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        "sasl_mechanisms": (MECHANISM,),
        "users_file": folder / "users.yaml",
        "key_service": f"file:{house.keys}",
        "data_keys_kept_s": KEPT_S,
    }
    return RunningGateway(folder / str(settings.get("name", "beside")), house.rules.table, **{**own, **settings})


def test_keys_of_vault_and_what_one_gateway_has_written_another_one_reads(house: House, tmp_path: Path) -> None:
    with transit() as engine:
        pii = f"pii-{house.orders[-8:]}"
        engine.create(pii)
        settings = {"key_service": f"vault:{engine.url}", "key_service_token": engine.token}
        one = start_gateway_beside(house, tmp_path, name="one", **settings)
        other = start_gateway_beside(house, tmp_path, **settings)
        try:
            table = house.rules.protected(house.emails(key_id=pii))
            one.follow(table)
            other.follow(table)
            house.gateway = one
            assert house.write(house.orders, ORDER) == [""]
            engine.rotate(pii)
            house.gateway = other
            assert house.values(READER, house.orders, 1) == [ORDER]
            engine.delete(pii)
            wait_until(lambda: house.values(READER, house.orders, 1) == [MASKED], "gone", 3 * KEPT_S)
            (masked,) = house.read(READER, house.orders, 1)
            assert masked.value() == MASKED.encode()
            assert f"key '{pii}' is gone".encode() in (headers_of(masked)["mesh-masked"] or b"")
        finally:
            one.close()
            other.close()


@pytest.mark.parametrize("committed", [True, False])
def test_transactions_of_idempotent_producers_are_committed_and_aborted_as_ever(house: House, committed: bool) -> None:
    house.protect(house.emails(), house.whole())
    security = {name.replace(".", "_"): value for name, value in house.confluent(OTHER).items()}
    security.pop("bootstrap_servers")
    producer = LibrdkafkaTransacting(house.bootstrap, f"{house.orders}-id", **security)
    try:
        producer.init()
        for number, ends in enumerate((producer.abort, producer.commit) * 2):
            producer.begin()
            producer.send(house.orders, ORDER.replace("7", str(number)))
            producer.send(house.cards, f"card {number}")
            assert producer.flush() == []
            ends()
    finally:
        producer.close()
    level = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    numbers = (1, 3) if committed else range(4)
    assert house.values(READER, house.orders, len(numbers), **level) == [
        ORDER.replace("7", str(number)) for number in numbers
    ]
    assert house.values(READER, house.cards, len(numbers), **level) == [f"card {number}" for number in numbers]
    assert house.values(OTHER, house.cards, len(numbers), **level) == ["***"] * len(numbers)


def test_an_idempotent_producers_many_batches_are_stored_once_and_in_their_order(house: House) -> None:
    house.protect(house.emails())
    values = [ORDER.replace("7", str(number)) for number in range(500)]
    heard: list[KafkaError | None] = []
    producer = Producer(house.confluent(OTHER, **{"enable.idempotence": True, "batch.num.messages": 10}))
    for value in values:
        producer.produce(house.orders, value, on_delivery=lambda error, _: heard.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert heard == [None] * 500
    assert house.values(READER, house.orders, 500) == values
    assert not any(SECRET in each for each in read_all(house.c1.bootstrap, house.orders))


def test_a_backlog_that_is_larger_than_an_answer_may_be_is_read_to_its_end(house: House) -> None:
    house.protect(house.emails())
    values = [ORDER.replace("7", f'{number}, "blank": "{" " * 100_000}"') for number in range(400)]
    heard: list[KafkaError | None] = []
    producer = Producer(house.confluent(OTHER, **{"compression.type": "zstd", "linger.ms": 50}))
    for value in values:
        producer.produce(house.orders, value, on_delivery=lambda error, _: heard.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert heard == [None] * 400
    assert house.values(READER, house.orders, 400) == values, "40 MB, in answers of 16 MiB at most"


def test_values_are_readable_after_their_topic_has_moved_with_its_records(house: House) -> None:
    house.protect(house.emails())
    assert house.write(house.orders, ORDER) == [""]
    (stored,) = read_messages({"bootstrap.servers": house.c1.bootstrap}, house.orders, 1)
    copy = Producer({"bootstrap.servers": house.c2.bootstrap})  # as a mirror copies it: bytes, key and headers
    copy.produce(house.orders, stored.value(), stored.key(), headers=headers_in(stored))
    assert copy.flush(30) == 0
    house.gateway.move(house.rules.to("c2", [house.orders]))
    assert house.write(house.orders, ORDER.replace("7", "8")) == [""]
    assert house.values(READER, house.orders, 2) == [ORDER, ORDER.replace("7", "8")]
    assert not any(SECRET in each for each in read_all(house.c2.bootstrap, house.orders))


def test_a_ciphertext_is_not_decrypted_in_another_topic_unless_the_rule_names_its_origin(house: House) -> None:
    elsewhere = Rule(
        "copies", house.cards, what=What.JSON, fields=("customer.email",), key_id="pii", readers=("User:*",)
    )
    house.protect(house.emails(), elsewhere)
    assert house.write(house.orders, ORDER) == [""]
    (stored,) = read_messages({"bootstrap.servers": house.c1.bootstrap}, house.orders, 1)
    thief = Producer({"bootstrap.servers": house.c2.bootstrap})
    thief.produce(house.cards, stored.value(), headers=headers_in(stored))
    assert thief.flush(30) == 0
    (masked,) = house.read(OTHER, house.cards, 1)
    assert masked.value() == MASKED.encode()
    assert b"encrypted for another topic" in (headers_of(masked)["mesh-masked"] or b"")
    copies = Rule(
        "copies",
        house.cards,
        what=What.JSON,
        fields=("customer.email",),
        key_id="pii",
        readers=("User:*",),
        origin_topics=(house.orders,),
    )
    house.protect(house.emails(), copies)
    assert house.values(OTHER, house.cards, 1) == [ORDER]


def test_values_that_were_stored_in_the_clear_are_masked_too(house: House) -> None:
    assert house.write(house.orders, ORDER, "no json") == ["", ""]
    house.protect(house.emails(key_id=""))
    assert house.write(house.orders, ORDER) == [""], "a rule without a key refuses nothing"
    assert house.values(OTHER, house.orders, 3) == [MASKED, "***", MASKED]
    assert house.values(READER, house.orders, 3) == [ORDER, "no json", ORDER]
    assert read_all(house.c1.bootstrap, house.orders) == [ORDER, "no json", ORDER]


def test_clients_of_0_8_to_0_10_are_protected_too(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("old")
    create_topic(kafka_c1, topic, 1)
    keys = tmp_path / "keys"
    keys.write_text(key_line("k", 1))
    gateway = start_gateway(rules.to("c1", [topic]), key_service=f"file:{keys}")
    gateway.follow(rules.protected(Rule("all", topic, key_id="k", readers=("User:*",))))
    client = OldClient(gateway.address)
    try:
        for version, sets in ((0, MAGIC_0), (2, MAGIC_1)):
            assert client.produce(version, (topic, sets[Codec.GZIP]))[0][1] == 0
        stored = [each.value() for each in read_messages({"bootstrap.servers": kafka_c1.bootstrap}, topic, 6)]
        assert stored[2] is None, "a tombstone"
        assert not any(clear in (value or b"") for value in stored for clear in (b"apple", b"pear"))
        for version in (0, 3):
            assert [value for _, _, value in client.read(version, topic, 6)] == [b"apple", b"pear", None] * 2
        gateway.follow(rules.protected(Rule("all", topic, key_id="k")))
        assert [value for _, _, value in client.read(1, topic, 6)] == [b"***", b"***", None] * 2
    finally:
        client.close()


def test_a_gateway_without_a_service_of_keys_stores_nothing_of_such_a_topic(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
) -> None:
    topic = unique_name("keyless")
    create_topic(kafka_c1, topic, 1)
    gateway = start_gateway(rules.to("c1", [topic]))
    gateway.follow(rules.protected(Rule("all", topic, key_id="k")))
    heard: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": gateway.address, "message.timeout.ms": 2_000})
    with capture_logs() as logs:
        producer.produce(topic, "clear", on_delivery=lambda error, _: heard.append(error))
        assert producer.flush(30) == 0
    assert [error.name() for error in heard if error] == ["_MSG_TIMED_OUT"]
    assert read_all(kafka_c1.bootstrap, topic) == []
    told = next(each for each in logs if each["event"] == "records can't be protected, and are not stored")
    assert "KEY_SERVICE" in told["reason"]


def test_a_fork_is_no_way_around_the_protection_of_the_topic_that_its_past_is_from(house: House) -> None:
    """`cards` is a fork of `orders` here, and has no rule of its own."""
    house.protect(house.emails())
    assert house.write(house.orders, ORDER, ORDER) == ["", ""]
    past = LogPart("c1", house.orders, 1, (0,), (0,), is_past=True)
    own = LogPart("c2", house.cards, 1, (2,), (2,))
    house.gateway.follow(house.rules.stitched(StitchedLog(house.cards, (past, own), house.orders)))
    assert house.write(house.cards, ORDER) == [""]
    assert house.values(READER, house.cards, 3) == [ORDER, ORDER, ORDER]
    assert house.values(OTHER, house.cards, 3) == [MASKED, MASKED, ORDER], "the own record has no rule"
    house.protect(house.emails(others=Others.REFUSAL))
    assert house.error(OTHER, house.cards).name() == "TOPIC_AUTHORIZATION_FAILED"
    assert house.values(READER, house.cards, 3) == [ORDER, ORDER, ORDER]
