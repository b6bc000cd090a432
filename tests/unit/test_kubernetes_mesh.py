"""deploy/kubernetes/mesh.yaml: each container starts with settings that its service takes, and finds the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from local.certificates import write_certificates
from local.owners import parse_owner
from mesh.rpc.principals import SPIFFE_ID, WORKER
from services.control.settings import ControlSettings
from services.gateway.settings import GatewaySettings
from services.router.settings import RouterSettings
from tests.plain_english import ROOT

Spec = dict[str, Any]
FOLDER = ROOT / "deploy" / "kubernetes"
SETTINGS: dict[str, type[BaseSettings]] = {
    "control": ControlSettings,
    "router": RouterSettings,
    "gateway": GatewaySettings,
}
TLS_MOUNT = "/etc/kafka-mesh/tls"
GIVEN = {"kafka-mesh-database": "postgresql://mesh:secret@postgres:5432/mesh", "kafka-mesh-home": "broker:9092"}
"""What the Secret and the ConfigMap of the page hold."""
OBJECTS: list[Spec] = list(yaml.safe_load_all((FOLDER / "mesh.yaml").read_text(encoding="utf-8")))
CERTIFICATES = {
    each["spec"]["secretName"]: each["spec"]
    for each in yaml.safe_load_all((FOLDER / "certificates.yaml").read_text(encoding="utf-8"))
    if each["kind"] == "Certificate"
}
WORKLOADS = {each["metadata"]["name"]: each for each in OBJECTS if each["kind"] in ("Deployment", "StatefulSet")}
SERVICES = {each["metadata"]["name"]: each["spec"] for each in OBJECTS if each["kind"] == "Service"}


def pod_of(name: str) -> Spec:
    spec: Spec = WORKLOADS[name]["spec"]["template"]["spec"]
    return spec


def container_of(name: str) -> Spec:
    (container,) = pod_of(name)["containers"]
    found: Spec = container
    return found


def environment(name: str) -> Iterator[tuple[str, str]]:
    for each in container_of(name)["env"]:
        match each:
            case {"value": value}:
                yield each["name"], value
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                yield each["name"], f"{name}-0"
            case {"valueFrom": {"secretKeyRef": {"name": source}}} | {
                "valueFrom": {"configMapKeyRef": {"name": source}}
            }:
                yield each["name"], GIVEN[source]


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a Secret is mounted: settings check that the files are there."""
    owner, folder = parse_owner("router/router-1@router-1"), tmp_path_factory.mktemp("certificates")
    write_certificates(folder, [owner])
    return folder / owner.folder


@pytest.fixture
def settings(name: str, tls_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    service = container_of(name)["name"]
    for variable, value in environment(name):
        assert variable.removeprefix(f"KAFKA_MESH_{service.upper()}_").lower() in SETTINGS[service].model_fields
        monkeypatch.setenv(variable, str(tls_folder) if value == TLS_MOUNT else value)
    return SETTINGS[service]()


def certificate_of(name: str) -> Spec:
    (secret,) = [each["secret"]["secretName"] for each in pod_of(name)["volumes"] if each["name"] == "tls"]
    found: Spec = CERTIFICATES[secret]
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_service_takes_its_settings_and_listens_on_the_ports_that_probes_ask(name: str, settings: Any) -> None:
    container = container_of(name)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert settings.metrics_listen.endswith(f":{ports['metrics']}")
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {
        "metrics"
    }
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert TLS_MOUNT in mounts & {value for _, value in environment(name)}
    if isinstance(settings, GatewaySettings):
        assert str(settings.state_dir) in mounts
    for each in SERVICES[name]["ports"]:
        assert ports[each["name"]] == each["port"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_certificate_names_the_member_and_the_address_of_servers(name: str, settings: Any) -> None:
    certificate = certificate_of(name)
    (uri,) = certificate["uris"]
    caller = SPIFFE_ID.fullmatch(uri)
    assert caller
    service = container_of(name)["name"]
    assert caller["role"] == service
    own = getattr(settings, "name", caller["name"])
    assert caller["name"] == (WORKER.sub("", own) if service == "gateway" else own)
    if service != "gateway":
        assert certificate["dnsNames"] == [name]


def test_members_call_services_that_are_there() -> None:
    called = [
        address.partition(":")
        for name in WORKLOADS
        for variable, value in environment(name)
        if variable.endswith(("_ADDRESSES", "_ADVERTISED"))
        for address in value.split(",")
    ]
    assert len(called) >= 5
    for host, _, port in called:
        assert int(port) in {each["port"] for each in SERVICES[host]["ports"]}


def test_a_service_leads_to_its_pods() -> None:
    for name, spec in SERVICES.items():
        assert spec["selector"] == WORKLOADS[name]["spec"]["template"]["metadata"]["labels"]
