"""Real clients under ACLs, over two real clusters: what they may do, what they see, and which errors they get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter, AclPermissionType
from confluent_kafka.admin._acl import AclOperation as Wanted
from confluent_kafka.admin._resource import ResourcePatternType as Pattern
from confluent_kafka.admin._resource import ResourceType as Kind
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import acls
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.user_files import Users, written
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway

PASSWORD = "pass"
MECHANISM = "SCRAM-SHA-256"
ANSWER_S = 120
MODES = {"enforce": acls.ACL_MODE_ENFORCE, "observe": acls.ACL_MODE_OBSERVE, "off": acls.ACL_MODE_OFF}


def acl(line: str) -> acls.Acl:
    """Such as "allow alice read topic orders... 10.0.0.1", with dots behind a prefix; the address may be left out."""
    permission, user, operation, kind, name, host = f"{line} *".split()[:6]
    pattern = acls.ACL_PATTERN_TYPE_PREFIXED if name.endswith("...") else acls.ACL_PATTERN_TYPE_LITERAL
    return acls.Acl(
        resource_type=acls.AclResourceType.Value(f"ACL_RESOURCE_TYPE_{kind.upper()}"),
        resource_name=name.removesuffix("..."),
        pattern_type=pattern,
        principal=user if ":" in user else f"User:{user}",
        host=host,
        operation=acls.AclOperation.Value(f"ACL_OPERATION_{operation.upper()}"),
        permission=acls.AclPermission.Value(f"ACL_PERMISSION_{permission.upper()}"),
    )


def written_by(producer: Producer, topic: str, value: str) -> KafkaError | None:
    """The outcome of the record. librdkafka takes no record for a topic whose refusal it knows already."""
    ends: list[KafkaError | None] = []
    try:
        producer.produce(topic, value, on_delivery=lambda error, _: ends.append(error))
    except KafkaException as refused:
        producer.poll(0.05)
        error: KafkaError = refused.args[0]
        return error
    assert producer.flush(ANSWER_S) == 0
    return ends[0]


@dataclass
class House:
    """A gateway before two clusters, with topics of one name on each: `PREFIX-orders` on c1, `PREFIX-secrets` on c2."""

    gateway: RunningGateway
    table: RoutingTable
    prefix: str
    folder: Path
    revision: int = 0

    @property
    def orders(self) -> str:
        return f"{self.prefix}-orders"

    @property
    def secrets(self) -> str:
        return f"{self.prefix}-secrets"

    @property
    def bootstrap(self) -> str:
        return self.gateway.address.rpartition("//")[2]

    def decide(self, *lines: str, mode: str = "enforce") -> None:
        """The policy comes with a table, as from a router. `root` is its super user."""
        self.revision += 1
        given = [acl(line.replace("PREFIX", self.prefix)) for line in lines]
        policy = acls.AclPolicy(mode=MODES[mode], acls=given, super_users=["User:root"], revision=self.revision)
        table = RoutingTable(
            self.table.revision + self.revision,
            self.table.clusters.values(),
            self.table.versions,
            self.table.pasts,
            Policies(policy),
        )

        async def run() -> None:
            self.gateway.gateway.mesh.run_table(table)

        self.gateway.call(run)

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

    def java(self, user: str, tool: Tool, *options: str, stdin: str = "") -> str:
        login = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{PASSWORD}";'
        )
        config = self.folder / f"{user}.properties"
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\nsasl.jaas.config={login}\n")
        run = ConsoleTools(self.bootstrap).run(tool, *options, "--command-config", str(config), stdin=stdin)
        return asyncio.run(run)

    def write(self, user: str, topic: str, *values: str, **more: Any) -> list[KafkaError | None]:
        """The outcome of each record."""
        producer = Producer(self.confluent(user, **{"linger.ms": 0, **more}))
        return [written_by(producer, topic, value) for value in values]

    def seen(self, user: str) -> set[str]:
        """The topics of this test that the user sees among all."""
        topics = AdminClient(self.confluent(user)).list_topics(timeout=ANSWER_S).topics
        return {name for name in topics if name.startswith(self.prefix)}


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[House]:
    prefix = unique_name("acl")
    create_topic(kafka_c1, f"{prefix}-orders", 1)
    create_topic(kafka_c2, f"{prefix}-secrets", 1)
    users = tmp_path / "users.yaml"
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES if each.value == MECHANISM}
    users.write_bytes(written(Users(dict.fromkeys(("alice", "bob", "root"), verifiers), b"s" * 32)))
    rules.to("c1", [f"{prefix}-orders"])
    table = rules.to("c2", [f"{prefix}-secrets"])
    gateway = start_gateway(
        table,
        listen=f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        sasl_mechanisms=(MECHANISM,),
        users_file=users,
        **getattr(request, "param", {}),
    )
    yield House(gateway, table, prefix, tmp_path)


def codes(ends: list[KafkaError | None]) -> set[int]:
    return {0 if each is None else each.code() for each in ends}


REFUSED_TOPIC, REFUSED_GROUP = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED
VALUES = tuple(str(number) for number in range(5))


def test_producers_write_what_they_may_and_are_told_of_the_rest(house: House, kafka_c2: KafkaCluster) -> None:
    house.decide("allow alice write topic PREFIX-o...")
    with capture_logs() as logs:
        assert codes(house.write("alice", house.orders, *VALUES)) == {0}
        assert codes(house.write("alice", house.secrets, *VALUES)) == {REFUSED_TOPIC}
        assert codes(house.write("bob", house.orders, *VALUES)) == {REFUSED_TOPIC}
        assert codes(house.write("root", house.secrets, "from root")) == {0}
    assert read_all(kafka_c2.bootstrap, house.secrets) == ["from root"]
    told = [each for each in logs if each["event"] == "an operation is refused" and each["principal"] == "User:bob"]
    assert {(each["resource"], each["reason"]) for each in told} == {(house.orders, "no ACL allows it")}


def test_a_deny_wins_over_an_allow_for_a_prefix(house: House) -> None:
    house.decide("allow alice write topic PREFIX...", "deny alice write topic PREFIX-secrets")
    assert codes(house.write("alice", house.orders, *VALUES)) == {0}
    assert codes(house.write("alice", house.secrets, *VALUES)) == {REFUSED_TOPIC}


def test_clients_see_the_topics_that_they_may_describe(house: House) -> None:
    house.decide("allow alice describe topic PREFIX-orders", "allow bob read topic PREFIX-secrets")
    assert house.seen("alice") == {house.orders}
    assert house.seen("bob") == {house.secrets}
    assert house.seen("root") == {house.orders, house.secrets}
    named = AdminClient(house.confluent("bob")).list_topics(house.orders, timeout=ANSWER_S).topics[house.orders]
    assert named.error is not None
    assert named.error.code() == REFUSED_TOPIC
    assert not named.partitions


def test_a_producer_that_may_not_create_a_topic_is_told_so(house: House) -> None:
    house.decide("allow alice write topic PREFIX...")
    ends = house.write("alice", f"{house.orders}-new", "x", **{"message.timeout.ms": 20_000})
    assert codes(ends) <= {REFUSED_TOPIC, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert codes(ends) != {0}


def error_of(message: Message | None) -> int | None:
    """The code of the error; 0 for a record, None for no message."""
    if message is None:
        return None
    error = message.error()
    return 0 if error is None else error.code()


def consume(house: House, user: str, topic: str, group: str, count: int) -> tuple[list[str], set[int]]:
    """The records and the errors of a consumer, until it has so many of either."""
    consumer = Consumer(house.confluent(user, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    values: list[str] = []
    errors: set[int] = set()

    def enough() -> bool:
        message = consumer.poll(0.5)
        code = error_of(message)
        if code:
            errors.add(code)
        elif message is not None:
            values.append((message.value() or b"").decode())
        return len(values) >= count or bool(errors)

    try:
        wait_until(enough, f"{count} records or an error", ANSWER_S)
        if not errors:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values, errors


def test_consumers_need_the_topic_and_the_group(house: House) -> None:
    group = f"{house.prefix}-group"
    house.decide(
        "allow alice read topic PREFIX...", "allow alice read group PREFIX...", "allow bob read topic PREFIX-orders"
    )
    house.write("root", house.orders, *VALUES)
    assert consume(house, "alice", house.orders, group, len(VALUES)) == (list(VALUES), set())
    assert consume(house, "bob", house.orders, group, 1) == ([], {REFUSED_GROUP})
    house.decide("allow alice read topic PREFIX-secrets", "allow alice read group PREFIX...")
    assert consume(house, "alice", house.orders, group, 1) == ([], {REFUSED_TOPIC})


def test_aiokafka_is_told_as_by_a_broker(house: House) -> None:
    house.decide(
        "allow alice write topic PREFIX-orders", "allow bob read topic PREFIX-orders", "allow bob read group PREFIX-bob"
    )

    async def talk() -> list[bytes | None]:
        async with AIOKafkaProducer(**house.aiokafka("alice")) as producer:
            for value in VALUES:
                await producer.send_and_wait(house.orders, value.encode())
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait(house.secrets, b"x")
        given = {"auto_offset_reset": "earliest", **house.aiokafka("bob")}
        with pytest.raises(GroupAuthorizationFailedError):
            async with AIOKafkaConsumer(house.orders, group_id=f"{house.prefix}-alice", **given) as consumer:
                await consumer.getone()
        async with AIOKafkaConsumer(house.orders, group_id=f"{house.prefix}-bob", **given) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(talk(), ANSWER_S)) == [value.encode() for value in VALUES]


def test_the_tools_of_kafka_see_and_hear_what_the_policy_says(house: House) -> None:
    house.decide(
        "allow alice all topic PREFIX-orders",
        "allow alice all group PREFIX...",
        "deny alice alter_configs topic PREFIX-orders",
        "allow bob describe topic PREFIX-secrets",
    )
    for user, seen in (("alice", {house.orders}), ("bob", {house.secrets})):
        listed = house.java(user, Tool.TOPICS, "--list").split()
        assert {name for name in listed if name.startswith(house.prefix)} == seen
    with pytest.raises(ClientError, match="AuthorizationException"):
        house.java("bob", Tool.TOPICS, "--create", "--topic", f"{house.prefix}-new")
    with pytest.raises(ClientError, match="AuthorizationException"):
        house.java("bob", Tool.ACLS, "--list")
    listed_acls = house.java("root", Tool.ACLS, "--list", "--topic", house.orders)
    assert "principal=User:alice, host=*, operation=ALL, permissionType=ALLOW" in listed_acls
    with pytest.raises(ClientError, match="no way to control: use meshctl"):
        house.java("root", Tool.ACLS, "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "x")


def test_administrators_see_the_acls_and_what_they_may_do(house: House) -> None:
    house.decide("allow alice read topic PREFIX-orders", "allow bob describe cluster kafka-cluster")
    any_one: Any = None
    every = Wanted.ANY, AclPermissionType.ANY
    wanted = AclBindingFilter(Kind.TOPIC, house.orders, Pattern.MATCH, any_one, any_one, *every)
    bob = AdminClient(house.confluent("bob"))
    found = bob.describe_acls(wanted).result(ANSWER_S)
    assert [(each.principal, each.name, each.operation) for each in found] == [
        ("User:alice", house.orders, Wanted.READ)
    ]
    # Alice is refused (the tools of Kafka hear of it), and librdkafka passes over that error of an answer without ACLs.
    assert AdminClient(house.confluent("alice")).describe_acls(wanted).result(ANSWER_S) == []
    cluster = bob.describe_cluster(include_authorized_operations=True).result(ANSWER_S)
    assert set(cluster.authorized_operations) == {Wanted.DESCRIBE}


def test_a_policy_counts_for_a_running_producer_and_consumer_at_once(house: House) -> None:
    allowed = "allow alice all topic PREFIX...", "allow alice all group PREFIX..."
    house.decide(*allowed)
    producer = Producer(house.confluent("alice", **{"linger.ms": 0}))

    def write_until(code: int) -> None:
        """Until the first record ends so."""
        wait_until(lambda: codes([written_by(producer, house.orders, "x")]) == {code}, f"{code} ends one", ANSWER_S)

    write_until(0)
    consumer = Consumer(house.confluent("alice", **{"group.id": house.prefix, "auto.offset.reset": "earliest"}))
    consumer.subscribe([house.orders])
    wait_until(lambda: error_of(consumer.poll(0.2)) == 0, "a record is read", ANSWER_S)
    house.decide(*allowed, "deny alice write topic PREFIX-orders", "deny alice read topic PREFIX-orders")
    write_until(REFUSED_TOPIC)
    wait_until(
        lambda: error_of(consumer.poll(0.2)) == REFUSED_TOPIC,
        "the consumer is told",
        ANSWER_S,
    )
    house.decide(*allowed)
    write_until(0)
    wait_until(lambda: error_of(consumer.poll(0.2)) == 0, "it reads again", ANSWER_S)
    consumer.close()


def test_a_policy_that_observes_refuses_nothing_and_counts_it(house: House) -> None:
    def counted() -> float:
        labels = {"resource_type": "topic", "operation": "write"}
        return REGISTRY.get_sample_value("kafka_mesh_gateway_observed_refusals_total", labels) or 0

    house.decide(mode="observe")
    before = counted()
    with capture_logs() as logs:
        assert codes(house.write("alice", house.orders, *VALUES)) == {0}
    assert counted() - before == len(VALUES)
    told = [each["operation"] for each in logs if each["event"] == "an operation would be refused"]
    assert told.count("write") == 1
    assert house.seen("alice") == {house.orders, house.secrets}


def test_a_mode_that_is_off_refuses_nothing(house: House) -> None:
    house.decide("deny alice all topic PREFIX...", mode="off")
    assert codes(house.write("alice", house.orders, *VALUES)) == {0}


@pytest.mark.parametrize("house", [{"authorization": "required"}], indirect=True)
def test_a_gateway_that_requires_a_policy_serves_nobody_without_one(house: House) -> None:
    assert house.seen("root") == set()
    for mode in ("off", "observe"):
        house.decide("allow alice all topic PREFIX...", mode=mode)
        assert house.seen("alice") == set()
    house.decide("allow alice all topic PREFIX...")
    assert house.seen("alice") == {house.orders, house.secrets}
