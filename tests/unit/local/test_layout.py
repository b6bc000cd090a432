"""The table of services, and the addresses that fill it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from local.layout import Layout, LayoutError, parse_clusters, parse_database, parse_ports
from local.ports import taken
from local.services import PORTS, SERVICES


def test_every_need_stands_earlier_in_the_table() -> None:
    seen: set[str] = set()
    for service in SERVICES:
        assert set(service.needs) <= seen, service.name
        seen.add(service.name)


def test_every_placeholder_has_a_value(tmp_path: Path) -> None:
    layout = Layout(state=tmp_path)
    for service in SERVICES:
        texts = [*layout.command(service), *layout.settings(service).values(), layout.address(service)]
        assert not [text for text in texts if "{" in text], service.name


def test_two_meshes_have_no_port_in_common() -> None:
    one, other = parse_ports(20000, (), {}), parse_ports(20000 + len(PORTS), (), {})

    assert not set(one.values()) & set(other.values())
    assert len(set(PORTS.values())) == len(PORTS)


def test_more_gateways_and_routers(tmp_path: Path) -> None:
    replicas = {"gateway": 3, "router": 2}
    layout = Layout(state=tmp_path, ports=parse_ports(None, (), replicas), replicas=replicas)
    third = next(service for service in layout.services() if service.name == "gateway-3")

    assert layout.settings(third) == {
        "KAFKA_MESH_GATEWAY_LISTEN": "127.0.0.1:19112",
        "KAFKA_MESH_GATEWAY_METRICS_LISTEN": "127.0.0.1:7192",
        "KAFKA_MESH_GATEWAY_RPC_TLS_FOLDER": f"{tmp_path}/certificates/gateway-3",
        "KAFKA_MESH_GATEWAY_NAME": "gateway-3",
        "KAFKA_MESH_GATEWAY_ADVERTISED": "127.0.0.1:19112",
        "KAFKA_MESH_GATEWAY_ROUTER_ADDRESSES": "127.0.0.1:7071,127.0.0.1:7081",
        "KAFKA_MESH_GATEWAY_STATE_DIR": f"{tmp_path}/gateway-3",
        "KAFKA_MESH_GATEWAY_HOME_BOOTSTRAP_SERVERS": "127.0.0.1:19193",
    }
    assert len(set(layout.needed_ports().values())) == len(layout.needed_ports())
    assert layout.endpoints()["gateway-3"] == "127.0.0.1:19112"


def test_given_clusters_and_database_take_the_place_of_embedded_ones(tmp_path: Path) -> None:
    clusters = parse_clusters(("west=a:9092,b:9092", "east=c:9092"))
    layout = Layout(state=tmp_path, clusters=clusters, database="postgresql://me@db/mesh")

    names = [service.name for service in layout.services()]

    assert not {"jars", "postgres", "kafka-c1", "kafka-c2"} & set(names)
    control = next(service for service in layout.services() if service.name == "control")
    assert layout.settings(control)["KAFKA_MESH_CONTROL_DATABASE_URL"] == "postgresql://me@db/mesh"
    assert layout.settings(control)["KAFKA_MESH_CONTROL_HOME_BOOTSTRAP_SERVERS"] == "a:9092,b:9092"


def test_one_port_among_the_defaults() -> None:
    assert parse_ports(None, ("gateway=29092",), {}) == {**PORTS, "gateway": 29092}


@pytest.mark.parametrize("value", ["gateway", "gateway=", "gateway=70000", "gateway=x", "nobody=1"])
def test_a_wrong_port_is_named(value: str) -> None:
    with pytest.raises(LayoutError, match=value):
        parse_ports(None, (value,), {})


@pytest.mark.parametrize("values", [("c1",), ("=a:1",), ("c1=a",), ("c1=a:1", "c1=b:1")])
def test_a_wrong_cluster_is_named(values: tuple[str, ...]) -> None:
    with pytest.raises(LayoutError, match="--cluster"):
        parse_clusters(values)


def test_who_holds_a_port_is_named() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]

        assert len(taken({"gateway": port})) == 1
        assert f"port {port} (gateway)" in taken({"gateway": port})[0]
        assert f"pid {os.getpid()}" in taken({"gateway": port})[0]


@pytest.mark.parametrize("value", ["c1", "c1=foo", "=a:1", "bad name=a:1", "c1=a:x", "c1=a:0", "c1=a:1,"])
def test_what_is_no_cluster_is_refused(value: str) -> None:
    with pytest.raises(LayoutError, match="is not NAME=HOST:PORT"):
        parse_clusters((value,))


@pytest.mark.parametrize("url", ["nonsense", "mysql://me@db/mesh", "postgresql://me@db"])
def test_what_is_no_database_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(LayoutError, match="not a PostgreSQL URL") as refused:
        parse_database(url)
    assert url not in str(refused.value)


def test_one_port_is_not_given_twice() -> None:
    with pytest.raises(LayoutError, match="port 23000 is given to gateway and to control"):
        parse_ports(None, ("gateway=23000", "control=23000"), {})


def test_a_mesh_without_the_example_registers_the_clusters_that_it_was_given(tmp_path: Path) -> None:
    clusters = {"west": "west-1:9092,west-2:9092", "east": "east-1:9092"}
    layout = Layout(state=tmp_path, clusters=clusters, example=False)
    (step,) = [service for service in layout.services() if service.name == "example"]
    command = layout.command(step)
    assert command[-3:] == ["--parts", "clusters", "west=west-1:9092,west-2:9092;east=east-1:9092"]
