"""The pod of a service and its sidecar for Kubernetes names what exists: settings, command, ports, secret, paths."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.certificates import write_certificates
from local.owners import parse_owner
from mesh.settings import host_port, is_loopback
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.kafka_properties import client_properties
from services.sidecar.wiring.reactive import reactive_options

DEPLOY = Path(__file__).parents[3] / "deploy"
TLS_MOUNT = "/etc/kafka-mesh/tls"
LOGIN_MOUNT = "/etc/kafka-mesh/login"

Spec = dict[str, Any]


@pytest.fixture(scope="module")
def pod() -> Spec:
    (found,) = yaml.safe_load_all((DEPLOY / "kubernetes" / "sidecar.yaml").read_text(encoding="utf-8"))
    claims = {each["metadata"]["name"] for each in found["spec"]["volumeClaimTemplates"]}
    pod: Spec = found["spec"]["template"]["spec"]
    volumes = claims | {each["name"] for each in pod["volumes"]}
    assert {each["name"] for each in sidecar_of(pod)["volumeMounts"]} == volumes
    return pod


def sidecar_of(pod: Spec) -> Spec:
    """It is an init container, so that it begins before the service and ends after it."""
    (container,) = pod["initContainers"]
    assert container["restartPolicy"] == "Always"
    return dict(container)


@pytest.fixture
def settings(pod: Spec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SidecarSettings:
    """The container's environment as the sidecar reads it; a folder stands for the mounted certificate."""
    write_certificates(tmp_path, [parse_owner("tls=sidecar/shop")])
    login = tmp_path / "login"
    login.mkdir()
    (login / "password").write_text("secret", encoding="utf-8")
    shutil.copy(tmp_path / "tls" / "ca.crt", login)
    for variable in sidecar_of(pod)["env"]:
        value = variable["value"].replace(TLS_MOUNT, str(tmp_path / "tls")).replace(LOGIN_MOUNT, str(login))
        monkeypatch.setenv(variable["name"], value)
    return SidecarSettings.from_file(None)


def test_its_settings_are_settings_and_nobody_else_reaches_the_sidecar(settings: SidecarSettings) -> None:
    assert is_loopback(host_port(settings.listen)[0])
    assert not settings.allow_insecure
    (found,) = settings.with_subscriptions(settings.subscriptions).values()
    assert reactive_options(found).interest.topics == ("orders",)


def test_its_command_and_image_are_those_of_compose(pod: Spec) -> None:
    composed = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["sidecar"]
    container = sidecar_of(pod)
    assert (container["image"], container["args"]) == (composed["image"], composed["command"])


def test_service_and_sidecar_find_each_other(pod: Spec, settings: SidecarSettings) -> None:
    (service,) = pod["containers"]
    (port,) = service["ports"]
    backend = f"http://127.0.0.1:{port['containerPort']}"
    assert (settings.backend_url, settings.downstream_host) == (backend, backend)
    assert service["readinessProbe"]["httpGet"] == {"path": settings.health_downstream_path, "port": port["name"]}
    assert service["env"] == [{"name": "SIDECAR_URL", "value": f"http://{settings.listen}"}]


def test_probes_ask_where_the_sidecar_answers(pod: Spec, settings: SidecarSettings) -> None:
    container = sidecar_of(pod)
    (port,) = container["ports"]
    assert settings.metrics_listen == f"0.0.0.0:{port['containerPort']}"
    paths = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert paths == [{"path": path, "port": port["name"]} for path in ("/live", "/live", "/ready")]
    assert pod["terminationGracePeriodSeconds"] * 1000 > 2 * settings.drain_timeout_ms


def test_its_certificate_is_mounted_and_its_state_outlives_the_pod(pod: Spec, settings: SidecarSettings) -> None:
    assert settings.rpc_tls is not None
    mounts = {each["name"]: each["mountPath"] for each in sidecar_of(pod)["volumeMounts"]}
    assert (mounts["tls"], mounts["state"]) == (TLS_MOUNT, str(settings.state_dir))
    secret = next(each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "tls")
    assert secret == f"kafka-mesh-sidecar-{settings.name}", "as the chart names it"
    assert (mounts["login"], client_properties(settings)["sasl.username"]) == (LOGIN_MOUNT, settings.name)


def test_the_image_runs_as_the_pods_user(pod: Spec) -> None:
    user = pod["securityContext"]["runAsUser"]
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert f"--uid {user}" in dockerfile
    assert json.loads(re.findall(r"ENTRYPOINT (.*)", dockerfile)[0]) == ["kafka-mesh"]
