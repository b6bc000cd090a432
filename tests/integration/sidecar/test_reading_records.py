"""What a read shows: formats that it asks for, headers in either shape, traces, and where an instance is called."""

from collections.abc import Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    with started(kafka_c1.bootstrap, public_url="https://mesh.example/kafka") as world:
        yield world


@pytest.mark.parametrize("as_option", [True, False])
def test_headers_as_a_list_keep_duplicates_and_bytes(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str, as_option: bool
) -> None:
    headers = [("a", b"1"), ("a", b"\xff"), ("traceparent", TRACE.encode()), ("X-Correlation-Id", b"c")]
    kafka.write(orders, {"value": b"1", "partition": 0, "headers": headers})
    sidecar.http.post(f"/consumers/{group}", json={"name": "c1"} | ({"headers": "list"} if as_option else {}))
    path = f"/consumers/{group}/instances/c1"
    sidecar.http.post(f"{path}/assignments", json={"partitions": [{"topic": orders, "partition": 0}]})
    (record,) = sidecar.http.get(f"{path}/records", params={} if as_option else {"headers": "list"}).json()
    assert [(one["key"], one["value"]) for one in record["headers"]] == [
        ("a", "MQ=="),
        ("a", "/w=="),
        ("traceparent", "MDAtNGJmOTJmMzU3N2IzNGRhNmEzY2U5MjlkMGUwZTQ3MzYtMDBmMDY3YWEwYmE5MDJiNy0wMQ=="),
        ("X-Correlation-Id", "Yw=="),
    ]


def test_the_trace_of_a_request_comes_back_out_of_its_record(sidecar: SidecarWorld, orders: str, group: str) -> None:
    produced = sidecar.http.post(
        f"/producers/{orders}",
        json={"records": [{"value": 1, "partition": 0}]},
        headers={"traceparent": TRACE, "X-Traceability-Id": "t-1", "X-Correlation-Id": "c-1"},
    )
    assert produced.status_code == 200
    sidecar.http.post(f"/consumers/{group}", json={"name": "c1"})
    path = f"/consumers/{group}/instances/c1"
    sidecar.http.post(f"{path}/assignments", json={"partitions": [{"topic": orders, "partition": 0}]})
    answer = sidecar.http.get(f"{path}/records")
    assert answer.json()[0]["headers"] == {"traceparent": TRACE, "X-Traceability-Id": "t-1", "X-Correlation-Id": "c-1"}
    assert "traceparent" not in answer.headers


def test_a_read_may_ask_for_another_format_of_its_values(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    kafka.write(orders, *({"key": b"k", "value": value, "partition": 0} for value in (b'{"n":1}', b"text")))
    sidecar.http.post(f"/consumers/{group}", json={"name": "c1", "keyFormat": "STRING", "valueFormat": "STRING"})
    path = f"/consumers/{group}/instances/c1"
    sidecar.http.post(f"{path}/assignments", json={"partitions": [{"topic": orders, "partition": 0}]})

    def read(**query: str) -> list[tuple[object, object]]:
        records = sidecar.http.get(f"{path}/records", params={"max_bytes": "1", **query}).json()
        return [(record["key"], record["value"]) for record in records]

    assert read(format="json") == [("k", {"n": 1})]
    misfit = sidecar.http.get(f"{path}/records", params={"format": "json"})
    assert (misfit.status_code, misfit.json()["code"]) == (400, "ERR12204")
    assert read(format="0") == [("aw==", "dGV4dA==")]
    no_registry = sidecar.http.get(f"{path}/records", params={"format": "AVRO"})
    assert (no_registry.status_code, no_registry.json()["code"]) == (400, "ERR12204")


def test_the_address_of_an_instance_is_where_backends_reach_it(sidecar: SidecarWorld, group: str) -> None:
    made = sidecar.http.post(f"/consumers/{group}", json={"name": "c 1"}).json()
    assert made["base_uri"] == made["baseUri"] == f"https://mesh.example/kafka/consumers/{group}/instances/c%201"
