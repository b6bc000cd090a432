"""A real Prometheus scrapes a mesh. Its alerts fire for what a test takes away, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.meshes import Mesh
from tests.fixtures.own_meshes import HEAL_S
from tests.fixtures.prometheus import Prometheus, prometheus_of
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

SERVICES = ("control", "router", "gateway", "sidecar")


@pytest.fixture(scope="module")
def prometheus(own_mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_of(own_mesh, tmp_path_factory.mktemp("prometheus"), SERVICES) as prometheus:
        yield prometheus


@pytest.fixture(autouse=True)
def a_healthy_mesh_has_no_alert(prometheus: Prometheus) -> None:
    wait_until(lambda: len(prometheus.query("up == 1")) == len(SERVICES), "all services are scraped", HEAL_S)
    wait_until(lambda: prometheus.firing() == set(), "no alert fires", HEAL_S)


def fires(prometheus: Prometheus, *alerts: tuple[str, str]) -> None:
    wait_until(lambda: prometheus.firing() >= set(alerts), f"{alerts} fire", HEAL_S)


def test_a_cluster_that_is_away_is_named(own_mesh: Mesh, prometheus: Prometheus) -> None:
    own_mesh.kill("kafka-c2")
    fires(prometheus, ("ClusterUnreachable", "c2"))
    assert ("ClusterUnreachable", "c1") not in prometheus.firing()
    own_mesh.start("kafka-c2")


def test_a_router_that_is_away_is_missed_by_prometheus_and_by_its_gateway(
    own_mesh: Mesh, prometheus: Prometheus
) -> None:
    own_mesh.kill("router")
    fires(prometheus, ("MemberDown", "kafka-mesh-router"), ("GatewayWithoutRouter", "kafka-mesh-gateway"))
    own_mesh.start("router")


def test_without_control_nobody_leads(own_mesh: Mesh, prometheus: Prometheus) -> None:
    own_mesh.kill("control")
    fires(prometheus, ("MemberDown", "kafka-mesh-control"), ("NoLeader", ""))
    own_mesh.start("control")


def test_without_postgresql_control_says_so(own_mesh: Mesh, prometheus: Prometheus) -> None:
    own_mesh.kill("postgres")
    fires(prometheus, ("DatabaseUnreachable", "kafka-mesh-control"))
    own_mesh.start("postgres")
