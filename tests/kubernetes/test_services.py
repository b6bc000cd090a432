"""Each container of the chart starts with settings that its service takes, and finds the others; policies let it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from docs.chart import secret_settings
from docs.settings import SETTINGS
from local.certificates import write_certificates
from local.owners import ROLES, SERVERS, parse_owner
from mesh.rpc.principals import WORKER
from mesh.rpc.roles import SPIFFE_ID
from mesh.settings import ServiceSettings
from meshctl.cli import cli
from services.gateway.serving import stop_bound_s
from services.gateway.settings import GatewaySettings
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.session import options_of
from tests.kubernetes import charts
from tests.kubernetes.charts import Workload
from tests.plain_english import ROOT

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
TLS_MOUNT = "/etc/kafka-mesh/tls"
GIVEN = {
    "DATABASE_URL": "postgresql://mesh:secret@postgres:5432/mesh",
    "HOME_BOOTSTRAP_SERVERS": "broker:9092",
    "KAFKA_PROPERTIES": '{"security.protocol": "SASL_SSL"}',
}
"""What Secrets and ConfigMaps hold."""
DOWNWARD = {"status.podIP": "10.1.2.3", "metadata.namespace": charts.NAMESPACE}
FILES = {
    "/etc/kafka-mesh/clients": ("tls.crt", "tls.key"),
    "/etc/kafka-mesh/client-ca": ("ca.crt",),
    "/etc/kafka-mesh/users": ("users.yaml",),
}
"""The keys of Secrets that are mounted there."""
CALLED = (
    "MESHCTL_ADDRESS",
    "CONTROL_ADDRESS",
    "TOKEN_ADDRESS",
    "_ADDRESSES",
    "_ADVERTISED",
    "PIPELINE_BOOTSTRAP_SERVERS",
)
"""The ends of names of settings that hold addresses of members."""
USERS = b"decoy_secret: " + base64.b64encode(bytes(range(32))) + b"\nusers: {}\n"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Helm renders the chart when the first test needs it, and not while tests are collected on machines without Go."""
    if "workload" in metafunc.fixturenames:
        cases = [(values, name) for values in charts.SETS for name in ("control", "router-1", "gateway")]
        cases += [("full", "pipeline"), ("full", "console")]
        metafunc.parametrize("workload", cases, indirect=True, ids="-".join)


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload:
    values, name = request.param
    return charts.workload(values, name)


@pytest.fixture
def settings(workload: Workload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ServiceSettings:
    """The container's environment as the service reads it; folders stand for what is mounted."""
    mounted(workload, tmp_path)
    service = workload.container["name"]
    kind = SETTINGS[service]
    prefix = f"KAFKA_MESH_{service.upper()}_"
    for name, value in environment(workload):
        if name.startswith(prefix):
            assert name.removeprefix(prefix).lower() in kind.model_fields
            monkeypatch.setenv(name, re.sub(r"^(?=/etc/)", str(tmp_path), value))
    return kind.from_file(None)


def mounted(workload: Workload, folder: Path) -> None:
    """The files that settings check, below the folder; the certificate of members stands for each."""
    write_certificates(folder, [parse_owner("made=router/router-1@router-1")])
    made = {path.name: path.read_bytes() for path in (folder / "made").iterdir()}
    for mount in workload.container["volumeMounts"]:
        for name in (*made,) if mount["mountPath"] == TLS_MOUNT else FILES.get(mount["mountPath"], ()):
            path = folder / mount["mountPath"].lstrip("/") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.get(name, USERS))


def environment(workload: Workload) -> Iterator[tuple[str, str]]:
    known: dict[str, str] = {}
    for each in workload.container["env"]:
        setting = re.sub(r"^KAFKA_MESH_[A-Z]+?_", "", each["name"])
        match each:
            case {"value": value}:
                known[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], value)
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                known[each["name"]] = f"{workload.name}-0"
            case {"valueFrom": {"fieldRef": {"fieldPath": path}}}:
                known[each["name"]] = DOWNWARD[path]
            case {"valueFrom": {"secretKeyRef": _}} | {"valueFrom": {"configMapKeyRef": _}}:
                known[each["name"]] = GIVEN[setting]
    assert len(known) == len(workload.container["env"]), "no variable twice"
    yield from known.items()


def test_a_service_takes_its_settings_and_answers_where_probes_ask(
    workload: Workload, settings: ServiceSettings
) -> None:
    container = workload.container
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert getattr(settings, "metrics_listen").endswith(f":{ports['metrics']}")  # noqa: B009 each of these services has it
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: (each["path"], each["port"]) for kind, each in probes.items()} == {
        "startup": ("/live", "metrics"), "liveness": ("/live", "metrics"), "readiness": ("/ready", "metrics"),
    }  # fmt: skip
    entrypoint = json.loads(re.findall(r"ENTRYPOINT (.*)", DOCKERFILE)[0])
    expected = ["pipeline", "serve"] if container["name"] == "pipeline" else [container["name"]]
    assert (entrypoint, container["args"]) == (["kafka-mesh"], expected)


def test_a_service_writes_where_it_may_and_mounts_what_it_reads(workload: Workload, settings: ServiceSettings) -> None:
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in workload.container["volumeMounts"]}
    volumes = {each["name"] for each in workload.pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in workload.spec.get("volumeClaimTemplates", ())}
    assert {each["name"] for each in workload.container["volumeMounts"]} == volumes
    if isinstance(settings, GatewaySettings | PipelineSettings):
        assert mounts[str(settings.state_dir)] is False
    if "secrets/home-password" in str(dict(environment(workload))):
        assert "/etc/kafka-mesh/secrets" in mounts


def test_pods_are_closed(workload: Workload) -> None:
    pod = workload.pod
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid {pod['securityContext']['runAsUser']}" in DOCKERFILE
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == closed
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
    assert pod["automountServiceAccountToken"] is (workload.container["name"] == "pipeline")


@pytest.mark.parametrize("values", charts.SETS)
def test_a_gateway_ends_before_kubernetes_kills_it(values: str) -> None:
    (gateway,) = [each for each in charts.workloads(values) if each.container["name"] == "gateway"]
    drain = float(dict(environment(gateway))["KAFKA_MESH_GATEWAY_DRAIN_TIMEOUT_S"])
    waits = gateway.container.get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})["preStop"]["sleep"]["seconds"]
    bound = stop_bound_s(GatewaySettings(allow_insecure=True, drain_timeout_s=drain))
    assert gateway.pod["terminationGracePeriodSeconds"] > waits + bound


@pytest.mark.parametrize("values", charts.SETS)
def test_members_call_services_that_are_there_and_lead_to_pods(values: str) -> None:
    services = {name: each["spec"] for name, each in charts.of_kind(values, "Service").items()}
    pods = charts.workloads(values)
    called = {
        (host.removesuffix(f".{charts.NAMESPACE}.svc"), int(port))
        for each in pods
        for name, value in environment(each)
        if name.endswith(CALLED)
        for host, _, port in (address.rpartition(":") for address in value.split(","))
    }
    inside = {each for each in called if not each[0].endswith("example.com")}
    assert {host.rpartition("-")[0] if host[-1].isdigit() else host for host, _ in inside} >= {
        "kafka-mesh-control", "kafka-mesh-router", "kafka-mesh-gateway",
    }  # fmt: skip
    assert all(port in {each["port"] for each in services[host]["ports"]} for host, port in inside)
    for spec in services.values():
        (led,) = [each for each in pods if spec["selector"].items() <= each.labels.items()]
        ports = {each["name"] for each in led.container["ports"]}
        assert {each["targetPort"] for each in spec["ports"]} <= ports


def test_callers_with_tokens_reach_control_where_issuers_are_named() -> None:
    control = charts.workload("full", "control")
    (listen,) = [value for name, value in environment(control) if name == "KAFKA_MESH_CONTROL_TOKEN_LISTEN"]
    port = int(listen.rpartition(":")[2])
    ports = {each["name"]: each["containerPort"] for each in control.container["ports"]}
    assert ports == {"grpc": 7070, "tokens": port, "metrics": 7170}
    service = charts.of_kind("full", "Service")[control.name]["spec"]["ports"]
    assert {"name": "tokens", "port": port, "targetPort": "tokens"} in service


@pytest.mark.parametrize("values", ["default", "minimal", "deployment"])
def test_without_issuers_control_has_no_port_for_tokens(values: str) -> None:
    control = charts.workload(values, "control")
    assert "KAFKA_MESH_CONTROL_TOKEN_LISTEN" not in dict(environment(control))
    assert {each["name"] for each in control.container["ports"]} == {"grpc", "metrics"}
    assert [each["name"] for each in charts.of_kind(values, "Service")[control.name]["spec"]["ports"]] == ["grpc"]


@pytest.mark.parametrize("values", ["full", "deployment"])
def test_each_certificate_names_a_caller_that_servers_know(values: str) -> None:
    made = [each["spec"] for each in charts.of_kind(values, "Certificate").values() if "uris" in each["spec"]]
    callers = {
        found["role"]: found["name"] for each in made for uri in each["uris"] if (found := SPIFFE_ID.fullmatch(uri))
    }
    assert len([each for each in made if SPIFFE_ID.fullmatch(each["uris"][0])]) == len(made)
    assert set(callers) <= set(ROLES)
    secrets = {each["secretName"]: each for each in made}
    for each in made:
        role = SPIFFE_ID.fullmatch(each["uris"][0])
        assert role is not None
        assert ("server auth" in each["usages"]) == (role["role"] in SERVERS) == ("dnsNames" in each)
    for workload in charts.workloads(values):
        (tls,) = [each for each in workload.pod["volumes"] if each["name"] == "tls"]
        service = workload.container["name"]
        named = {"control": "control-1", "meshctl": "apply", "console": "console"}.get(service, "")
        name = dict(environment(workload)).get(f"KAFKA_MESH_{service.upper()}_NAME", named)
        if "csi" in tls:
            attributes = tls["csi"]["volumeAttributes"]
            assert attributes["csi.cert-manager.io/uri-sans"] == "spiffe://kafka-mesh/gateway/${POD_NAME}"
            continue
        certificate = secrets[tls["secret"]["secretName"]]
        found = SPIFFE_ID.fullmatch(certificate["uris"][0])
        assert found is not None
        assert found["name"] in (name, WORKER.sub("", name))
        if "dnsNames" in certificate:
            assert workload.name in certificate["dnsNames"]


def test_the_certificate_for_clients_has_each_advertised_host() -> None:
    hosts = charts.of_kind("full", "Certificate")["kafka-mesh-gateway-clients"]["spec"]["dnsNames"]
    assert hosts == ["kafka-mesh-gateway.mesh.svc", "*.kafka.example.com", "kafka.example.com"]


def test_what_spark_carries_is_authenticated_and_encrypted_and_executors_come_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (pipeline,) = [each for each in charts.workloads("full") if each.container["name"] == "pipeline"]
    mounted(pipeline, tmp_path)
    for name, value in environment(pipeline):
        monkeypatch.setenv(name, re.sub(r"^(?=/etc/)", str(tmp_path), value))
    found = PipelineSettings.from_file(None)
    options = options_of(found)
    for name in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
        assert options[name] == "true", "tasks carry passwords of clusters and the database's URL"
    assert options["spark.driver.host"] == DOWNWARD["status.podIP"]
    assert options["spark.executor.heartbeatInterval"] == "20s"
    assert found.max_batch_rows == 1_000_000
    (template,) = charts.of_kind("full", "ConfigMap").values()
    executor = yaml.safe_load(template["data"]["executor.yaml"])["spec"]
    mounts = {each["name"]: each["mountPath"] for each in pipeline.container["volumeMounts"]}
    assert options["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['executor']}/executor.yaml"
    assert options["spark.kubernetes.executor.podTemplateContainerName"] == executor["containers"][0]["name"]
    assert options["spark.kubernetes.container.image"] == pipeline.container["image"]
    assert [*executor["containers"][0]["command"], "executor"] == ["kafka-mesh", "pipeline", "executor"]
    assert executor["securityContext"] == pipeline.pod["securityContext"]
    assert executor["volumes"][0] in pipeline.pod["volumes"], "executors share the folder of the data"
    python = next(each["value"] for each in pipeline.container["env"] if each["name"] == "PYSPARK_PYTHON")
    assert str(Path(python).parents[1]) in DOCKERFILE


def test_a_file_is_followed_by_a_command_that_meshctl_takes(tmp_path: Path) -> None:
    (follower,) = [each for each in charts.workloads("full") if each.container["name"] == "meshctl"]
    mounts = {each["mountPath"]: each["name"] for each in follower.container["volumeMounts"]}
    volumes = {each["name"]: each for each in follower.pod["volumes"]}
    words = follower.container["args"]
    folder, _, file = words[words.index("--file") + 1].rpartition("/")
    assert (volumes[mounts[folder]]["configMap"]["name"], file) == ("mesh-file", "mesh.yaml")
    assert dict(environment(follower))["MESHCTL_TLS_FOLDER"] in mounts
    (tmp_path / file).write_text("rules: []", encoding="utf-8")
    here = [word.replace(folder, str(tmp_path)) for word in words]
    taken = cli.make_context("meshctl", here)
    with taken:
        command = cli.get_command(taken, "apply")
        assert command is not None
        parsed = command.make_context("apply", here[1:], parent=taken).params
    assert (parsed["watch"], parsed["prune"], parsed["resync"]) == (True, True, 300)


def test_the_console_listens_with_tls_for_the_names_of_its_service_and_of_its_values() -> None:
    given = dict(environment(charts.workload("full", "console")))
    assert given["KAFKA_MESH_CONSOLE_HOSTS"] == "kafka-mesh-console,kafka-mesh-console.mesh.svc,mesh.example.com"
    assert given["KAFKA_MESH_CONSOLE_TOKEN_ADDRESS"] == "kafka-mesh-control:7072"
    assert given["KAFKA_MESH_CONSOLE_TLS_CERTIFICATE"] == "/etc/kafka-mesh/clients/tls.crt"
    assert "KAFKA_MESH_CONSOLE_TLS_IN_FRONT" not in given


def test_a_console_without_a_certificate_for_browsers_stands_behind_tls() -> None:
    run = charts.template("--set", "console.enabled=true")
    deployments = [each for each in yaml.safe_load_all(run.stdout) if each and each["kind"] == "Deployment"]
    (console,) = [each for each in deployments if each["metadata"]["name"] == "kafka-mesh-console"]
    (container,) = console["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    assert given["KAFKA_MESH_CONSOLE_TLS_IN_FRONT"] == "true"
    assert "KAFKA_MESH_CONSOLE_TLS_CERTIFICATE" not in given
    assert "KAFKA_MESH_CONSOLE_TOKEN_ADDRESS" not in given, "control takes no tokens"


def test_the_pod_of_the_pipeline_may_do_what_drivers_do() -> None:
    (pipeline,) = [each for each in charts.workloads("full") if each.container["name"] == "pipeline"]
    account = pipeline.pod["serviceAccountName"]
    (role,), (binding,) = charts.of_kind("full", "Role").values(), charts.of_kind("full", "RoleBinding").values()
    assert account in charts.of_kind("full", "ServiceAccount")
    assert [each["name"] for each in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    allowed = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert {"create", "get", "list", "watch", "delete"} <= allowed["pods"] & allowed["configmaps"]


@pytest.mark.parametrize("values", charts.SETS)
def test_secrets_are_references(values: str) -> None:
    assert charts.of_kind(values, "Secret") == {}
    for workload in charts.workloads(values):
        service = workload.container["name"]
        names = secret_settings(service) if service in SETTINGS else ()
        secret = {f"KAFKA_MESH_{service.upper()}_{name}" for name in names}
        for container in [*workload.pod.get("initContainers", ()), workload.container]:
            given = {each["name"] for each in container["env"] if "value" in each}
            assert given.isdisjoint(secret)
