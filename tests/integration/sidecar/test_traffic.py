"""What a sidecar tells of its traffic: what its backend wrote, read and was given, and how long that took."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.traffic import ToldTraffic
from tests.integration.sidecar.reactive_world import reading, wait_for_commit
from tests.integration.sidecar.world import NOWHERE, Json, Kafka, started

COUNT = 50
RECORDS: list[Json] = [{"key": f"k{n}", "value": "v" * 10, "partition": 0} for n in range(COUNT)]
BYTES = sum(len(one["key"]) + len(one["value"]) for one in RECORDS)
TEXT = {"value_format": "string"}


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def test_what_a_backend_writes_and_reads_is_told_with_its_topic(
    told_traffic: ToldTraffic, kafka: Kafka, orders: str, group: str
) -> None:
    with started(kafka.bootstrap, service_id="shop", **TEXT, **told_traffic.settings) as sidecar:
        assert sidecar.produce(orders, *RECORDS).status_code == 200
        assert sidecar.produce(f"{orders}-unknown", *RECORDS).status_code == 404
        instance = sidecar.create(group, "one")
        instance.subscribe(orders)
        instance.read_all(COUNT)

    written = told_traffic.figures(client="shop", api="produce", topic=orders)
    read = told_traffic.figures(client="shop", api="consume", topic=orders)
    assert (written.records, written.bytes, written.calls, written.errors) == (COUNT, BYTES, 1, 0)
    assert (read.records, read.bytes, read.errors) == (COUNT, BYTES, 0)
    assert written.latencies.n == 1
    assert read.latencies.n == read.calls
    failed = told_traffic.figures(api="produce", topic=f"{orders}-unknown")
    assert (failed.records, failed.calls, failed.errors) == (0, 1, 1)
    assert {(one.reporter, one.reporter_kind) for one in told_traffic.reports()} == {("sidecar-test", "sidecar")}


def test_transactions_count_once_they_are_done(
    told_traffic: ToldTraffic, kafka: Kafka, orders: str, topic: str
) -> None:
    settings = {"transactional_ids": f"{topic}-writer", **TEXT, **told_traffic.settings}
    with started(kafka.bootstrap, **settings) as sidecar:
        answer = sidecar.http.post("/transactions", json={"topics": [{"topic": orders, "records": RECORDS}]})
        assert answer.status_code == 200, answer.text
    written = told_traffic.figures(api="produce", topic=orders)
    assert (written.records, written.bytes, written.calls, written.errors) == (COUNT, BYTES, 1, 0)


def test_what_the_backend_is_given_is_told_with_how_long_it_took(
    told_traffic: ToldTraffic, kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    with reading(kafka, backend, orders, group, **told_traffic.settings):
        kafka.write(orders, *({**one, "key": one["key"].encode(), "value": one["value"].encode()} for one in RECORDS))
        backend.wait_for_records(COUNT)
        wait_for_commit(kafka, group, orders, 0, COUNT)
    given = told_traffic.figures(client="sidecar-test", api="deliver", topic=orders)
    assert (given.records, given.bytes, given.errors) == (COUNT, BYTES, 0)
    assert given.latencies.n == given.calls >= 1


def test_a_home_cluster_that_is_away_is_in_nobodys_way(kafka: Kafka, orders: str, group: str) -> None:
    told = ToldTraffic(kafka.bootstrap, f"mesh.traffic-{orders}")
    settings = told.settings | {"home_bootstrap_servers": (NOWHERE,), "traffic_interval_s": 1}
    with started(kafka.bootstrap, **TEXT, **settings) as sidecar:
        assert sidecar.produce(orders, *RECORDS).status_code == 200
        instance = sidecar.create(group, "one")
        instance.subscribe(orders)
        instance.read_all(COUNT)
    assert told.reports() == []
