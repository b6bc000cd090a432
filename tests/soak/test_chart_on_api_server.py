"""A real API server takes the objects of the chart, which Helm installs and upgrades, without a warning about pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from docs.chart import CHART
from tests.fixtures.waiting import wait_until
from tests.kubernetes import charts, tools
from tests.kubernetes.api_server import ApiServer, api_server
from tests.plain_english import ROOT

RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
"""The server warns of a template whose pods it would refuse."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """With the definitions of cert-manager, but without cert-manager."""
    tools.program("helm")  # its first build is no part of a test's time
    with api_server(tmp_path_factory.mktemp("kubernetes")) as found:
        for path in tools.custom_definitions():
            definition = yaml.safe_load(path.read_text(encoding="utf-8"))
            found.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        wait_until(lambda: found.served("cert-manager.io/v1"), "the server knows certificates")
        yield found


@pytest.fixture
def namespace(server: ApiServer, request: pytest.FixtureRequest) -> str:
    """One for each test, as `charts.NAMESPACE` is in the rendered names of certificates alone."""
    name = (
        f"mesh-{request.node.callspec.params['values']}-{request.node.originalname.partition('_')[2][:20].strip('_')}"
    )
    name = name.replace("_", "-")
    server.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    return name


@pytest.mark.parametrize("values", charts.SETS)
def test_the_server_would_apply_each_object_without_a_warning(server: ApiServer, values: str, namespace: str) -> None:
    found = charts.objects(values)
    assert len(found) >= 8
    faults = {
        f"{each['kind']} {each['metadata']['name']}": server.would_apply(rehomed(each, namespace), namespace)
        for each in found
    }
    assert {name: each for name, each in faults.items() if each} == {}


def test_the_server_would_apply_the_example_of_a_sidecar(server: ApiServer) -> None:
    server.create("/api/v1/namespaces", {"metadata": {"name": "shop", "labels": RESTRICTED}})
    example = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "sidecar.yaml").read_text(encoding="utf-8"))
    assert server.would_apply(example, "shop") == []


@pytest.mark.parametrize("values", ["default"])
def test_the_server_finds_faults(server: ApiServer, values: str, namespace: str) -> None:
    found = [
        rehomed(each, namespace) for each in charts.objects(values) if each["kind"] in ("Deployment", "StatefulSet")
    ]
    for each in found:
        each["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": True}
        each["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = "no port at all"
        (refused, *_) = server.would_apply(each, namespace)
        assert "livenessProbe.httpGet.port" in refused
        each["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = "metrics"
        (warned,) = server.would_apply(each, namespace)
        assert "would violate PodSecurity" in warned
        assert "allowPrivilegeEscalation != false" in warned


@pytest.mark.parametrize("values", charts.SETS)
def test_helm_installs_and_upgrades_the_chart(server: ApiServer, values: str, namespace: str) -> None:
    where = [charts.RELEASE, str(CHART), f"--namespace={namespace}", f"--kubeconfig={server.kubeconfig}"]
    installed = charts.helm("install", *where, *charts.options(values))
    assert (installed.returncode, installed.stderr) == (0, "")
    assert "One replica of control stays unready" in installed.stdout
    for change in ("gateway.imageTag=0.2.0", "routers.count=4", "gateway.autoscaling.enabled=true"):
        upgraded = charts.helm("upgrade", *where, "--reuse-values", "--set", change)
        assert (upgraded.returncode, upgraded.stderr) == (0, "")
    kept = server.client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments").json()["items"]
    assert {f"{charts.RELEASE}-router-{number}" for number in range(1, 5)} <= {
        each["metadata"]["name"] for each in kept
    }
    removed = charts.helm("uninstall", charts.RELEASE, *where[2:])
    assert removed.returncode == 0, removed.stderr
    assert server.client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments").json()["items"] == []


def rehomed(found: charts.Object, namespace: str) -> charts.Object:
    """A copy of an object that names another namespace."""
    copy: charts.Object = yaml.safe_load(
        yaml.safe_dump(found).replace(f"namespace: {charts.NAMESPACE}\n", f"namespace: {namespace}\n")
    )
    return copy
