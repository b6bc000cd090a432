"""Clients of gateways go on while pods come and go: spread, waits before a stop, budgets and the autoscaler."""

from __future__ import annotations

import pytest
import yaml

from docs.chart import CHART
from tests.kubernetes import charts
from tests.plain_english import ROOT

GATEWAY = f"{charts.RELEASE}-gateway"
SELECTOR = {
    "app.kubernetes.io/name": "kafka-mesh",
    "app.kubernetes.io/instance": charts.RELEASE,
    "app.kubernetes.io/component": "gateway",
}


@pytest.mark.parametrize("values", charts.SETS)
def test_gateways_spread_over_zones_and_hosts(values: str) -> None:
    gateway = charts.workload(values, "gateway")
    assert SELECTOR.items() <= gateway.labels.items()
    assert gateway.pod["topologySpreadConstraints"] == [
        {
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": SELECTOR},
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]


@pytest.mark.parametrize(("values", "seconds"), [("default", 10), ("minimal", 10), ("full", 20)])
def test_a_gateway_serves_on_while_load_balancers_take_it_out(values: str, seconds: int) -> None:
    container = charts.workload(values, "gateway").container
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": seconds}}}


def test_a_gateway_without_load_balancers_need_not_wait() -> None:
    assert "lifecycle" not in charts.workload("deployment", "gateway").container


@pytest.mark.parametrize(("values", "at_most"), [("default", 1), ("minimal", 1), ("full", 1), ("deployment", "25%")])
def test_the_budget_of_gateways_bounds_those_that_go_at_once(values: str, at_most: int | str) -> None:
    budget = charts.of_kind(values, "PodDisruptionBudget")[GATEWAY]["spec"]
    assert budget == {"maxUnavailable": at_most, "selector": {"matchLabels": SELECTOR}}


def test_connections_of_a_client_go_to_any_gateway_unless_values_say_otherwise() -> None:
    assert charts.of_kind("default", "Service")[GATEWAY]["spec"]["sessionAffinity"] == "None"
    run = charts.template("--set", "gateway.service.sessionAffinity=ClientIP")
    rendered = [each for each in yaml.safe_load_all(run.stdout) if each]
    (service,) = [each["spec"] for each in rendered if (each["kind"], each["metadata"]["name"]) == ("Service", GATEWAY)]
    assert service["sessionAffinity"] == "ClientIP"


def test_replicas_are_for_the_autoscaler_alone() -> None:
    gateway = charts.workload("full", "gateway")
    assert "replicas" not in gateway.spec
    scaler = charts.of_kind("full", "HorizontalPodAutoscaler")[GATEWAY]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": gateway.name}
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 10)


def test_the_autoscaler_goes_by_half_of_the_cpu_and_by_connections() -> None:
    scaler = charts.of_kind("full", "HorizontalPodAutoscaler")[GATEWAY]["spec"]
    cpu, connections = scaler["metrics"]
    # a gateway also carries the clients of one that is gone: docs/how-to/capacity.md
    half = {"type": "Utilization", "averageUtilization": 50}
    assert cpu == {"type": "Resource", "resource": {"name": "cpu", "target": half}}
    assert charts.workload("full", "gateway").container["resources"]["requests"]["cpu"] == "1", "a core each"
    assert connections["pods"]["target"] == {"type": "AverageValue", "averageValue": "2000"}
    metric = connections["pods"]["metric"]["name"]
    assert metric.removeprefix("kafka_mesh_gateway_") in (ROOT / "docs/reference/gateway-metrics.md").read_text("utf-8")


def test_the_autoscaler_goes_by_the_cpu_that_values_say() -> None:
    run = charts.template(*charts.options("full"), "--set", "gateway.autoscaling.cpuUtilization=37")
    (scaler,) = [each for each in yaml.safe_load_all(run.stdout) if each["kind"] == "HorizontalPodAutoscaler"]
    assert scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 37


def test_one_gateway_at_a_time_goes_when_load_falls() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["gateway"]
    down = charts.of_kind("full", "HorizontalPodAutoscaler")[GATEWAY]["spec"]["behavior"]["scaleDown"]
    grace = charts.workload("full", "gateway").pod["terminationGracePeriodSeconds"]
    assert down == {
        "stabilizationWindowSeconds": values["autoscaling"]["scaleDownSeconds"],
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": max(60, grace)}],
    }


@pytest.mark.parametrize(("values", "replicas"), [("default", 2), ("minimal", 1), ("deployment", 2)])
def test_no_autoscaler_where_none_is_asked_for(values: str, replicas: int) -> None:
    assert charts.of_kind(values, "HorizontalPodAutoscaler") == {}
    assert charts.workload(values, "gateway").spec["replicas"] == replicas
