"""Topics under other names on their clusters: clients see their own names everywhere, the clusters theirs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions, NewTopic

from mesh.routing import ForwardingRule, NamePrefix, NameRegex, RoutingTable, RuleVersion, UpstreamCluster
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.records import produce, read_all

COUNT = 200


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant's gateway: `{run}.` topics are `tenant-{run}.…` on c1, `{run}-NAME-v1` ones `v1.{run}.NAME` on c2."""

    run: str
    address: str
    admin: AdminClient
    c1: AdminClient
    c2: AdminClient


def table(run: str, c1: KafkaCluster, c2: KafkaCluster, template: str = "tenant-{topic}") -> RoutingTable:
    rules = (
        ForwardingRule("prefix", NamePrefix(f"{run}."), "c1", upstream_topic=template),
        ForwardingRule("regex", NameRegex(rf"{run}-(\w+)-(v\d)"), "c2", upstream_topic=f"{{2}}.{run}.{{1}}"),
    )
    clusters = [
        UpstreamCluster("c1", (c1.bootstrap,), 1, home=True),
        UpstreamCluster("c2", (c2.bootstrap,), 2),
    ]
    return RoutingTable(2, clusters, [RuleVersion(rule, float(rank), 2) for rank, rule in enumerate(rules)])


@pytest.fixture
def tenant(
    start_gateway: StartGateway, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Iterator[Tenant]:
    run = unique_name("t").replace("-", "")
    gateway = start_gateway(table(run, kafka_c1, kafka_c2))
    admins = [
        AdminClient({"bootstrap.servers": at}) for at in (gateway.address, kafka_c1.bootstrap, kafka_c2.bootstrap)
    ]
    yield Tenant(run, gateway.address, *admins)
    for admin in admins[1:]:
        left = [name for name in admin.list_topics(timeout=20).topics if run in name]
        for deleted in admin.delete_topics(left).values() if left else ():
            deleted.result(20)


def there(admin: AdminClient, run: str) -> dict[str, int]:
    found = admin.list_topics(timeout=20).topics
    return {name: len(topic.partitions) for name, topic in found.items() if run in name}


def create(tenant: Tenant, *names: str) -> None:
    for created in tenant.admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        created.result(20)
    for name in names:
        await_leaders(tenant.admin, name, 2)


def retention_ms(admin: AdminClient, topic: str) -> str:
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value: str = admin.describe_configs([asked])[asked].result(20)["retention.ms"].value
    return value


def test_topics_are_made_listed_widened_and_deleted_by_the_names_of_the_client(tenant: Tenant) -> None:
    on_c1, on_c2 = f"{tenant.run}.orders", f"{tenant.run}-bills-v1"
    create(tenant, on_c1, on_c2)
    assert there(tenant.admin, tenant.run) == {on_c1: 2, on_c2: 2}
    assert there(tenant.c1, tenant.run) == {f"tenant-{tenant.run}.orders": 2}
    assert there(tenant.c2, tenant.run) == {f"v1.{tenant.run}.bills": 2}

    tenant.admin.create_partitions([NewPartitions(on_c1, 3)])[on_c1].result(20)
    widened = {f"tenant-{tenant.run}.orders": 3}
    wait_until(lambda: there(tenant.c1, tenant.run) == widened, "the broker has heard of the new partition")

    setting = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, on_c2, incremental_configs=[setting])
    tenant.admin.incremental_alter_configs([resource])[resource].result(20)
    upstream = f"v1.{tenant.run}.bills"
    wait_until(lambda: retention_ms(tenant.c2, upstream) == "3600000", "the broker has heard of the setting")
    assert retention_ms(tenant.admin, on_c2) == "3600000"

    for deleted in tenant.admin.delete_topics([on_c1, on_c2]).values():
        deleted.result(20)
    wait_until(lambda: not there(tenant.c1, tenant.run) and not there(tenant.c2, tenant.run), "both topics are gone")


@pytest.mark.parametrize("acks", ["all", "0"])
def test_records_of_both_clusters_come_and_go_by_the_names_of_the_client(tenant: Tenant, acks: str) -> None:
    on_c1, on_c2 = f"{tenant.run}.orders", f"{tenant.run}-bills-v1"
    create(tenant, on_c1, on_c2)
    for topic in (on_c1, on_c2):
        produce(tenant.address, topic, [f"{topic} {n}" for n in range(COUNT)], acks=acks)
    expected = {f"{topic} {n}" for topic in (on_c1, on_c2) for n in range(COUNT)}
    group = f"group-{tenant.run}"
    consumer = Consumer(
        {
            "bootstrap.servers": tenant.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    seen: set[str] = set()
    try:
        consumer.subscribe([f"^{tenant.run}[.-].*"])  # the regular expression sees clients' names alone
        while seen != expected:
            record = consumer.poll(20)
            assert record is not None, f"{len(seen)} of {len(expected)} records came"
            assert record.error() is None, record.error()
            assert (record.topic() or "") in (on_c1, on_c2)
            seen.add((record.value() or b"").decode())
        consumer.commit(asynchronous=False)
        assert sum(consumer.get_watermark_offsets(TopicPartition(on_c1, p), timeout=20)[1] for p in range(2)) == COUNT
    finally:
        consumer.close()

    committed = tenant.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    assert {found.topic for found in committed.topic_partitions} == {on_c1, on_c2}
    assert sum(found.offset for found in committed.topic_partitions) == 2 * COUNT
    upstream = tenant.c1.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    assert {found.topic for found in upstream.topic_partitions} == {f"tenant-{tenant.run}.orders"}


def test_a_topic_that_gets_another_name_on_its_cluster_goes_on_there(
    tenant: Tenant, start_gateway: StartGateway, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    topic = f"{tenant.run}.orders"
    gateway = start_gateway(table(tenant.run, kafka_c1, kafka_c2))
    create(tenant, topic)
    produce(gateway.address, topic, ["before"])
    renaming = table(tenant.run, kafka_c1, kafka_c2, "other-{topic}")
    renamed = RoutingTable(3, renaming.clusters.values(), renaming.versions)
    tenant.c1.create_topics([NewTopic(f"other-{topic}", 2, 1)])[f"other-{topic}"].result(20)
    gateway.move(renamed)
    produce(gateway.address, topic, ["after"])
    assert read_all(kafka_c1.bootstrap, f"tenant-{topic}") == ["before"]
    assert read_all(kafka_c1.bootstrap, f"other-{topic}") == ["after"]
    assert read_all(gateway.address, topic) == ["after"]
