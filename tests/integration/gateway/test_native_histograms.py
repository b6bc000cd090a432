"""Native histograms of a gateway of two workers, as the real Prometheus gets them, with the feature and without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

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


@dataclass(frozen=True, slots=True)
class Scraped:
    """Two Prometheus servers, which scrape the same gateway."""

    native: Prometheus
    classic: Prometheus


@pytest.fixture
def scraped(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, create_topic: CreateTopic, apples: str, tmp_path: Path
) -> Iterator[Scraped]:
    """Consumers wait at an empty topic, and each request has a trace (whose receiver is away)."""
    create_topic(kafka_c1, apples, 1)
    rules = Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})
    with ExitStack() as stack:
        router = stack.enter_context(closing(Router(rules.to("c1", [apples]))))
        settings = {"ROUTER_ADDRESSES": router.address, "DRAIN_TIMEOUT_S": "5", "TRACING_RATE": "1"}
        away = f"http://127.0.0.1:{free_block(1)}"
        workers = stack.enter_context(closing(RunningWorkers(tmp_path, 2, TRACING_ENDPOINT=away, **settings)))
        workers.wait_until_ready()
        for _ in range(CONSUMERS):
            config = {"bootstrap.servers": workers.address, "group.id": apples, "fetch.wait.max.ms": WAIT_MS}
            consumer = Consumer({**config, "fetch.queue.backoff.ms": 0})
            stack.enter_context(closing(consumer))
            consumer.assign([TopicPartition(apples, 0, 0)])
        servers = []
        for name, features in (("native", ("native-histograms", "exemplar-storage")), ("classic", ())):
            (tmp_path / name).mkdir()
            servers.append(stack.enter_context(prometheus(tmp_path / name, {"gateway": workers.management}, features)))
        yield Scraped(*servers)


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
