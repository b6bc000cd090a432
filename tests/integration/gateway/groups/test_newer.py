"""Groups of the newer kinds by real clients: on one cluster as without a mesh, over two by rule or not at all."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

from confluent_kafka import Consumer, ConsumerGroupType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from mesh.routing import ClientMatch, ExactName, ForwardingRule, Subject
from services.gateway.requests.groups.shadow_topics import MARK
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_unless, wait_until
from tests.integration.gateway.conftest import CreateTopic, DeleteTopic, StartGateway
from tests.integration.gateway.member import run_member
from tests.integration.gateway.records import produce, read
from tests.integration.gateway.running import Rules
from tests.integration.gateway.sharing import ShareMember, set_up
from tests.integration.gateway.talking import comes_true, talking_to

COUNT = 100
ANSWER_S = 60.0


def librdkafka(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def records(batch: int, *topics: str) -> set[str]:
    return {f"{topic} {batch} {n}" for topic in topics for n in range(COUNT)}


def produce_to(bootstrap: str, batch: int, *topics: str) -> set[str]:
    """Records of this batch for each topic."""
    for topic in topics:
        produce(bootstrap, topic, sorted(records(batch, topic)))
    return records(batch, *topics)


def groups_of(bootstrap: str, *names: str) -> dict[str, ConsumerGroupType]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups(request_timeout=20).result(20)
    return {group.group_id: group.type for group in listed.valid if group.group_id in names}


def test_a_consumer_group_lives_where_its_topics_are_and_clients_take_turns_in_it(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c2, bananas)
    gateway = start_gateway(rules.to("c2", [bananas]))
    expected = produce_to(gateway.address, 0, bananas)
    with closing(librdkafka(gateway.address, group)) as consumer:
        consumer.subscribe([bananas])
        assert sorted(read(consumer, COUNT)) == sorted(expected)
        consumer.commit(asynchronous=False)
    assert groups_of(kafka_c2.bootstrap, group) == {group: ConsumerGroupType.CONSUMER}
    assert groups_of(kafka_c1.bootstrap, group) == {}
    assert groups_of(gateway.address, group) == {group: ConsumerGroupType.CONSUMER}

    expected = produce_to(gateway.address, 1, bananas)
    member = run_member("consumer", gateway.address, group, [bananas], COUNT, group_protocol="consumer")
    assert member.faults == []
    assert sorted(member.values) == sorted(expected)


def test_a_consumer_group_whose_rule_forbids_shadow_topics_is_told_why_not(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    rules.to("c2", [bananas])
    gateway = start_gateway(rules.put(ForwardingRule("group-home", ExactName(group, Subject.GROUP), "c1")))
    sentence = f"group {group} lives on cluster c1, but subscribes to topics of other clusters (cluster c2: {bananas})"
    with closing(librdkafka(gateway.address, group)) as consumer:
        consumer.subscribe([apples, bananas])
        message = consumer.poll(ANSWER_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert sentence in error.str()

    member = run_member("consumer", gateway.address, group, [apples, bananas], 1, group_protocol="consumer")
    [(kind, text)] = member.faults
    assert kind == "InvalidRequestException"
    assert text.startswith(f"Invalid request: {sentence}")


def test_a_consumer_group_over_two_clusters_with_shadow_topics_reads_and_resumes(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    delete_topic: DeleteTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    rules.to("c2", [bananas])
    delete_topic(kafka_c1, bananas)  # the shadow, in the end
    home = ForwardingRule("group-home", ExactName(group, Subject.GROUP), "c1", shadow_topics=True)
    gateway = start_gateway(rules.put(home))
    expected = produce_to(gateway.address, 0, apples, bananas)
    with closing(librdkafka(gateway.address, group)) as consumer:
        consumer.subscribe([apples, bananas])
        assert sorted(read(consumer, 2 * COUNT)) == sorted(expected)
        consumer.commit(asynchronous=False)

    expected = produce_to(gateway.address, 1, apples, bananas)
    member = run_member("consumer", gateway.address, group, [apples, bananas], 2 * COUNT, group_protocol="consumer")
    assert member.faults == []
    assert sorted(member.values) == sorted(expected)

    # offsets of both topics lie at home; the shadow is marked, empty and shown by nobody but its cluster
    with closing(librdkafka(kafka_c1.bootstrap, group)) as there:
        places = [TopicPartition(topic, n) for topic in (apples, bananas) for n in range(3)]
        assert sum(place.offset for place in there.committed(places, timeout=20)) == 4 * COUNT
        assert {there.get_watermark_offsets(place, timeout=20) for place in places[3:]} == {(0, 0)}
    name, value = MARK
    shadow = ConfigResource(ResourceType.TOPIC, bananas)
    on_c1 = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    assert on_c1.describe_configs([shadow])[shadow].result(20)[name].value == value
    assert groups_of(kafka_c2.bootstrap, group) == {}
    through_mesh = AdminClient({"bootstrap.servers": gateway.address})
    assert set(through_mesh.list_topics(timeout=20).topics) == {apples, bananas}


def test_a_consumer_group_that_gets_no_shadow_topics_is_told_why_not(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    """Other clients have a topic on c1 by the shadow's name."""
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    theirs = ExactName(bananas, client=ClientMatch(client_id="other"))
    rules.put(ForwardingRule("theirs", theirs, "c1"))
    gateway = start_gateway(rules.to("c2", [bananas]))
    member = run_member("consumer", gateway.address, group, [apples, bananas], 1, group_protocol="consumer")
    [(kind, text)] = member.faults
    assert kind == "InvalidRequestException"
    assert f"group {group} lives on cluster c1, but subscribes to topics of other clusters" in text
    assert f"other clients have topics on cluster c1 that are called as the shadows would be: {bananas}" in text


def wait_for_coordinator(cluster: KafkaCluster, group: str) -> None:
    """A cluster that has never had a group makes its coordinators only now; settings are not tried again by clients."""

    def obstacle() -> str | None:
        try:
            consumer.committed([TopicPartition("any", 0)], timeout=30)
        except KafkaException as error:  # a coordinator that has just been made says that it is none
            return str(error)
        return None

    with closing(librdkafka(cluster.bootstrap, group)) as consumer:
        wait_unless(obstacle, f"cluster {cluster.name} has coordinators", 60)


def await_share_lag(tools: ConsoleTools, group: str, topic: str, wanted: int) -> None:
    """Brokers write what members accept a little later."""
    wait_until(lambda: share_lag(tools, group, topic) == wanted, f"{wanted} records are left to the group")


def share_lag(tools: ConsoleTools, group: str, topic: str) -> int:
    """Records that nobody has accepted yet, as kafka-share-groups tells."""
    described = asyncio.run(tools.run(Tool.SHARE_GROUPS, "--describe", "--group", group))
    lags = re.findall(rf"^{re.escape(group)}\s+{re.escape(topic)}\s+\d+\s+\d+\s+(\d+)", described, re.MULTILINE)
    assert lags, described
    return sum(map(int, lags))


async def test_a_share_consumer_acknowledges_on_another_connection_than_it_fetches_on(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    group: str,
) -> None:
    """franz-go does so: it has a connection for what waits, and others for what does not."""
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]))
    await asyncio.to_thread(set_up, gateway.address, group)
    member = ShareMember(group, apples)
    async with talking_to(gateway.address) as fetching, talking_to(gateway.address) as acknowledging:
        await member.join(acknowledging)
        assert await member.acquire(fetching) == []
        produce(gateway.address, apples, ["one"])
        [acquired] = await comes_true(lambda: member.acquire(fetching), bool, "the record comes")
        await member.accept(acknowledging, acquired)
    await asyncio.to_thread(await_share_lag, ConsoleTools(gateway.address), group, apples, 0)


def test_settings_from_before_a_groups_first_member_hold_on_the_cluster_of_its_topics(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    """By Kafka's own tools. The mesh's home is c1."""
    owners = {apples: kafka_c1, bananas: kafka_c2}
    for topic, owner in owners.items():
        create_topic(owner, topic)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    tools = ConsoleTools(gateway.address)
    for topic in owners:
        expected = produce_to(gateway.address, 0, topic)
        name = f"{group}-{topic}"
        change = ("--alter", "--entity-type", "groups", "--entity-name", name)
        asyncio.run(tools.run(Tool.CONFIGS, *change, "--add-config", "share.auto.offset.reset=earliest"))
        described = ("--describe", "--entity-type", "groups", "--entity-name", name)

        def is_told(described: tuple[str, ...] = described) -> bool:
            return "share.auto.offset.reset=earliest" in asyncio.run(tools.run(Tool.CONFIGS, *described))

        wait_until(is_told, "the broker has heard of the setting")
        wanted = ("--topic", topic, "--group", name, "--max-messages", str(COUNT), "--timeout-ms", "60000")
        printed = asyncio.run(tools.run(Tool.CONSOLE_SHARE_CONSUMER, *wanted))
        assert set(printed.split("\n")) - {""} == expected


def test_a_share_group_gives_records_out_and_again(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    for cluster in (kafka_c1, kafka_c2):
        wait_for_coordinator(cluster, group)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    # the group does not exist yet
    admin = AdminClient({"bootstrap.servers": gateway.address})
    admin.incremental_alter_configs([resource])[resource].result(20)
    values = sorted(records(0, apples) | {"again 1", "again 2"})
    produce(gateway.address, apples, values)

    member = run_member("share", gateway.address, group, [apples], len(values))
    assert member.faults == []
    assert sorted(member.values) == values
    assert sorted(member.of("released")) == ["again 1", "again 2"]

    tools = ConsoleTools(gateway.address)
    await_share_lag(tools, group, apples, 0)
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", apples)
    asyncio.run(tools.run(Tool.SHARE_GROUPS, *reset))
    await_share_lag(tools, group, apples, len(values))
    deleted = asyncio.run(tools.run(Tool.SHARE_GROUPS, "--delete", "--group", group))
    assert "was successful" in deleted

    gateway.move(rules.put(ForwardingRule("group-home", ExactName(group, Subject.GROUP), "c1")))
    refused = run_member("share", gateway.address, group, [apples, bananas], 1)
    [(kind, text)] = refused.faults
    assert kind == "InvalidRequestException"
    assert f"cluster c2: {bananas}" in text
