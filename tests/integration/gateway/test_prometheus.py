"""The real Prometheus scrapes a gateway of two workers: native histograms or classic ones, clients and topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.monitoring.files import description
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.prometheus import Prometheus, prometheus
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.running import Rules
from tests.integration.gateway.workers import Router, RunningWorkers

UPSTREAM = "kafka_mesh_gateway_request_upstream_seconds"
CONSUMERS = 8
"""Enough for both workers to have some."""
WAIT_MS = 500
"""The broker answers each Fetch of an empty topic so late: this is the true value."""
ONE_BUCKET = 2 ** (1 / 8)
WAITS = 200
"""Observations that are enough for a quantile."""
SCRAPED_S = 60.0
RECORDS = 20
"""Each producer sends so many records, one in a request."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """Two Prometheus servers, which scrape the same gateway."""

    native: Prometheus
    classic: Prometheus
    address: str
    """The endpoint of the gateway."""


@pytest.fixture
def scraped(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, create_topic: CreateTopic, apples: str, tmp_path: Path
) -> Iterator[Scraped]:
    """Consumers wait at an empty topic, and each request has a trace (whose receiver is away)."""
    create_topic(kafka_c1, apples, 1)
    rules = Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})
    with ExitStack() as stack:
        router = stack.enter_context(closing(Router(rules.to("c1", [apples]))))
        settings = {"ROUTER_ADDRESSES": router.address, "DRAIN_TIMEOUT_S": "1", "TRACING_RATE": "1"}
        settings |= {"HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap, "TRAFFIC_TOPIC": f"mesh.traffic.{apples}"}
        away = f"http://127.0.0.1:{free_block(1)}"
        workers = stack.enter_context(
            closing(RunningWorkers(tmp_path, 2, TRACING_ENDPOINT=away, TRAFFIC_INTERVAL_S="1", **settings))
        )
        workers.wait_until_ready()
        for _ in range(CONSUMERS):
            config = {"bootstrap.servers": workers.address, "group.id": apples, "fetch.wait.max.ms": WAIT_MS}
            consumer = Consumer({**config, "fetch.queue.backoff.ms": 0})
            stack.enter_context(closing(consumer))
            consumer.assign([TopicPartition(apples, 0, 0)])
        servers = {}
        for name, features in (("native", ("native-histograms", "exemplar-storage")), ("classic", ())):
            (tmp_path / name).mkdir()
            target = {"gateway": workers.management}
            servers[name] = stack.enter_context(prometheus(tmp_path / name, target, features))
        yield Scraped(servers["native"], servers["classic"], workers.address)


def values(server: Prometheus, expression: str) -> dict[str, float]:
    """By worker, or by API where the workers are one."""
    found = {
        each["metric"].get("worker", each["metric"].get("api", "")): float(each["value"][1])
        for each in server.query(expression)
        if "value" in each
    }
    return {label: value for label, value in found.items() if value == value}  # NaN is no value


def test_a_quantile_is_within_a_bucket_of_the_truth_and_other_scrapers_get_classic_buckets(scraped: Scraped) -> None:
    native, classic = scraped.native, scraped.classic
    fetches = f'{UPSTREAM}{{api="Fetch"}}'
    counted = f"histogram_count({fetches})"
    wait_until(lambda: sum(values(native, counted).values()) > WAITS, "Fetches are scraped", SCRAPED_S)
    in_classic = f'{UPSTREAM}_count{{api="Fetch"}}'
    wait_until(lambda: sum(values(classic, in_classic).values()) > WAITS, "and here", SCRAPED_S)
    truth = WAIT_MS / 1000
    of_workers = values(native, f"histogram_quantile(0.5, rate({fetches}[1m]))")
    assert set(of_workers) == {"1", "2"}
    assert all(truth <= value <= truth * ONE_BUCKET**2 for value in of_workers.values()), of_workers
    (of_both,) = values(native, f"histogram_quantile(0.5, sum by (api) (rate({fetches}[1m])))").values()
    assert truth <= of_both <= truth * ONE_BUCKET**2
    (late,) = values(native, f"histogram_quantile(0.99, sum by (api) (rate({fetches}[1m])))").values()
    assert of_both <= late
    assert native.query(f"{UPSTREAM}_bucket") == []

    assert classic.query(UPSTREAM) == []
    bounds = {each["metric"]["le"] for each in classic.query(f'{UPSTREAM}_bucket{{api="Fetch",worker="1"}}')}
    assert {"5e-05", "0.4096", "0.8192", "+Inf"} <= bounds

    (panel,) = [
        panel["expr"].replace("$__rate_interval", "1m")
        for board in description()["dashboards"]
        for row in board["rows"]
        for panel in row["panels"]
        if panel.get("p99_of") == UPSTREAM
    ]
    for server in (native, classic):
        assert truth <= values(server, panel)["Fetch"] <= 2 * truth

    (series,) = {each["seriesLabels"]["__name__"] for each in native.exemplars(fetches)}
    assert series == UPSTREAM
    exemplars = [exemplar for each in native.exemplars(fetches) for exemplar in each["exemplars"]]
    assert all(len(exemplar["labels"]["trace_id"]) == 32 for exemplar in exemplars)


def test_series_say_which_client_asked_and_which_topics_have_traffic(scraped: Scraped, apples: str) -> None:
    names = [f"shop-{number}" for number in range(2)]
    for name in names:
        producer = Producer({"bootstrap.servers": scraped.address, "client.id": name, "linger.ms": 0})
        for _ in range(RECORDS):
            producer.produce(apples, b"x" * 100, partition=0)
            assert producer.flush(60) == 0

    def value(metric: str, labels: str) -> float:
        return sum(values(scraped.classic, f"sum(kafka_mesh_gateway_{metric}{{{labels}}})").values())

    clients = [
        f'client_id="{name}",principal="User:ANONYMOUS",software=~".*librdkafka.*|confluent-kafka-python.*"'
        for name in names
    ]

    def becomes(metric: str, labels: str, least: int) -> None:
        """Prometheus has no series of a process whose last scrape took too long."""
        wait_until(lambda: value(metric, labels) >= least, f"{metric} {labels} is {least} or more", SCRAPED_S)

    for client in clients:
        becomes("client_requests_total", client, RECORDS)
        becomes("client_traffic_bytes_total", f'{client},direction="in"', 100 * RECORDS)
    becomes("client_open_connections", 'client_id="rdkafka"', CONSUMERS)
    written = f'topic="{apples}",cluster="c1",api="Produce"'
    all_records = len(names) * RECORDS
    wait_until(lambda: value("traffic_topic_records_total", written) == all_records, "all records are told", SCRAPED_S)
    becomes("traffic_topic_bytes_total", written, 100 * all_records)
    assert value("unnamed_clients", "") == value("traffic_unnamed_topics", "") == 0
