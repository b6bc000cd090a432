"""What a gateway tells of its clients' traffic: the sums are what was sent, and the home cluster holds nobody up."""

import uuid
from contextlib import closing
from datetime import UTC, datetime

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from mesh.home_cluster import HomeCluster
from mesh.traffic.counting import Combination, Counts
from mesh.traffic.metrics import TrafficMetrics
from mesh.traffic.reporter import ReportWriter
from mesh.traffic.sketches import LatencySketch
from services.gateway import metrics
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.traffic import ToldTraffic
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.gateways import Turns
from tests.integration.gateway.records import produce, read, read_all
from tests.integration.gateway.running import Rules

COUNT = 300


def test_the_sums_of_two_topics_on_two_clusters_are_what_was_sent_and_read(
    told_traffic: ToldTraffic,
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
    gateway = start_gateway(rules.to("c2", [bananas]), **told_traffic.settings)
    places = {apples: ("c1", f"rules/r-2-{apples}"), bananas: ("c2", f"rules/r-3-{bananas}")}
    for topic in places:
        produce(gateway.address, topic, [f"{topic} {n}" for n in range(COUNT)], **{"client.id": "shop"})
        assert len(read_all(gateway.address, topic, **{"client.id": "reader"})) == COUNT
    gateway.close()

    for topic, (cluster, rule) in places.items():
        sent = told_traffic.figures(client="shop", api="Produce", topic=topic)
        given = told_traffic.figures(client="reader", api="Fetch", topic=topic)
        assert (sent.records, given.records) == (COUNT, COUNT)
        assert sent.bytes == given.bytes >= sum(2 * len(f"{topic} {n}") for n in range(COUNT))
        assert sent.errors == given.errors == 0
        assert sent.latencies.n == sent.calls > 0
        assert {(one.cluster, one.rule, one.principal) for one in sent.counters + given.counters} == {
            (cluster, rule, "")
        }
    assert told_traffic.figures(client="shop", api="Metadata").calls > 0
    assert {(report.reporter, report.reporter_kind) for report in told_traffic.reports()} == {
        ("gateway-test", "gateway")
    }


def test_what_fails_is_counted_as_an_error_of_its_topic(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]), **told_traffic.settings)
    produce(gateway.address, apples, ["one", "two"])
    settings = {"bootstrap.servers": gateway.address, "group.id": group, "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(apples, 0, 10_000)])
        assert read(consumer, 2) == ["one", "two"]
    gateway.close()

    given = told_traffic.figures(topic=apples, api="Fetch")
    assert given.errors == 1
    assert given.records == 2


def test_a_home_cluster_that_is_away_delays_nobody_and_is_told_when_it_is_back(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c2: KafkaCluster,
    bananas: str,
) -> None:
    create_topic(kafka_c2, bananas)
    nobody = free_block(1)
    settings = told_traffic.settings | {"home_bootstrap_servers": (f"127.0.0.1:{nobody}",), "traffic_interval_s": 1}
    gateway = start_gateway(rules.to("c2", [bananas]), **settings)
    produce(gateway.address, bananas, map(str, range(COUNT)))
    assert len(read_all(gateway.address, bananas)) == COUNT
    wait_until(_waiting_bytes, "a report waits for the home cluster")
    assert told_traffic.reports() == []

    home = Turns([told_traffic.bootstrap], nobody)
    try:
        wait_until(
            lambda: told_traffic.figures(topic=bananas, api="Produce").records == COUNT,
            "the home cluster is told what flowed while it was away",
            60,
        )
    finally:
        gateway.close()
        home.close()


def _waiting_bytes() -> float:
    return sum(sample.value for one in metrics.traffic.waiting_bytes.collect() for sample in one.samples)


def test_a_report_that_is_too_large_for_the_topic_holds_up_no_other(
    told_traffic: ToldTraffic, kafka_c1: KafkaCluster
) -> None:
    small_records = NewTopic(told_traffic.topic, 1, 1, config={"max.message.bytes": "2000"})
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    admin.create_topics([small_records])[told_traffic.topic].result(30)
    own = TrafficMetrics("gateway_of_large_reports")
    writer = ReportWriter(HomeCluster((kafka_c1.bootstrap,)), told_traffic.topic, "gateway-1", "gateway", own)
    for clients in (200, 1):
        counts = Counts(LatencySketch, datetime.now(UTC))
        for _ in range(clients):
            counts.count(Combination(client=uuid.uuid4().hex, api="Produce"), 1.0)
        writer.hand_over(counts.take(datetime.now(UTC)))
    writer.start()
    try:
        wait_until(lambda: len(told_traffic.reports()) == 1, "the small one arrives", 60)
        assert len(told_traffic.reports()[0].counters) == 1
        wait_until(
            lambda: [sample.value for sample in next(iter(own.lost.collect())).samples][:1] == [1], "the other is lost"
        )
    finally:
        writer.stop(5)


def test_without_a_home_cluster_nothing_is_counted(rules: Rules, start_gateway: StartGateway, apples: str) -> None:
    gateway = start_gateway(rules.to("c1", [apples]))
    assert gateway.gateway.mesh.memory.traffic is None
