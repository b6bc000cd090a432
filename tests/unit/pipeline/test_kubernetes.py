"""The spec for Kubernetes says what exists: settings, commands, names, mounts; executors start as Spark wants it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from local.certificates import write_certificates
from local.owners import ROLES, SERVERS, parse_owner
from mesh.rpc.principals import SPIFFE_ID
from services.pipeline.__main__ import pipeline
from services.pipeline.commands.executor import executor_line
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.session import options_of

SPEC = Path(__file__).parents[3] / "deploy" / "kubernetes" / "pipeline.yaml"
COMPOSE = SPEC.parents[2] / "docker-compose.yml"
DOCKERFILE = SPEC.parents[1] / "Dockerfile"
PREFIX = "KAFKA_MESH_PIPELINE_"
TLS_MOUNT = "/etc/kafka-mesh/tls"
DOWNWARD = {"POD_IP": "10.1.2.3", "POD_NAME": "kafka-mesh-pipeline-5f7c", "POD_NAMESPACE": "mesh"}
BY_THE_DRIVER = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-1",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_CLASSPATH": ":/opt/spark/jars/*",
    "SPARK_JAVA_OPT_0": "-Xss4m",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dsecond=1",
}

Spec = dict[str, Any]


@pytest.fixture(scope="module")
def objects() -> dict[str, Spec]:
    """By kind; there is one of each."""
    found = [each for each in yaml.safe_load_all(SPEC.read_text(encoding="utf-8")) if each]
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


@pytest.fixture
def pod(objects: dict[str, Spec]) -> Spec:
    template: Spec = objects["Deployment"]["spec"]["template"]["spec"]
    return template


@pytest.fixture
def executor(objects: dict[str, Spec]) -> Spec:
    template: Spec = yaml.safe_load(objects["ConfigMap"]["data"]["executor.yaml"])["spec"]
    return template


@pytest.fixture
def settings(pod: Spec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PipelineSettings:
    """The container's environment as the service reads it; a folder stands for the mounted certificate."""
    write_certificates(tmp_path, [parse_owner("tls=pipeline/pipeline-1")])
    for variable in pod["containers"][0]["env"]:
        value = variable.get("value", "postgresql://u:p@h:5432/d" if "URL" in variable["name"] else "")
        value = value.replace(TLS_MOUNT, str(tmp_path / "tls"))
        for name, known in DOWNWARD.items():
            value = value.replace(f"$({name})", known)
        if variable["name"].startswith(PREFIX):
            monkeypatch.setenv(variable["name"], value)
    return PipelineSettings.from_file(None)


def test_its_settings_are_settings(settings: PipelineSettings) -> None:
    options = options_of(settings)
    assert options["spark.driver.host"] == DOWNWARD["POD_IP"]
    assert options["spark.driver.bindAddress"] == "0.0.0.0"
    assert options["spark.kubernetes.namespace"] == DOWNWARD["POD_NAMESPACE"]
    assert settings.master.startswith("k8s://")
    assert not settings.ship_package


def test_its_command_and_that_of_executors_exist(pod: Spec, executor: Spec) -> None:
    entrypoint = json.loads(re.findall(r"ENTRYPOINT (.*)", DOCKERFILE.read_text(encoding="utf-8"))[0])
    assert [*entrypoint, *pod["containers"][0]["args"]] == ["kafka-mesh", "pipeline", "serve"]
    # Spark's driver gives the argument "executor"
    assert [*executor["containers"][0]["command"], "executor"] == ["kafka-mesh", "pipeline", "executor"]
    assert isinstance(pipeline, click.Group)
    assert {"serve", "executor"} <= set(pipeline.commands)


def test_image_template_and_python_are_those_that_are_there(
    pod: Spec, executor: Spec, objects: dict[str, Spec], settings: PipelineSettings
) -> None:
    container = pod["containers"][0]
    spark = settings.spark_properties
    composed = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["pipeline"]["image"]
    assert container["image"] == spark["spark.kubernetes.container.image"] == composed
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    template = spark["spark.kubernetes.executor.podTemplateFile"]
    assert template == f"{mounts['executor']}/{next(iter(objects['ConfigMap']['data']))}"
    assert spark["spark.kubernetes.executor.podTemplateContainerName"] == executor["containers"][0]["name"]
    python = next(each["value"] for each in container["env"] if each["name"] == "PYSPARK_PYTHON")
    assert str(Path(python).parents[1]) in DOCKERFILE.read_text(encoding="utf-8")


def test_the_certificate_of_the_member_is_mounted_from_its_secret(pod: Spec, settings: PipelineSettings) -> None:
    assert settings.rpc_tls is not None
    mounts = {each["name"]: (each["mountPath"], each.get("readOnly")) for each in pod["containers"][0]["volumeMounts"]}
    assert mounts["tls"] == (TLS_MOUNT, True)
    secret = next(each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "tls")
    (made,) = [each for each in certificates() if each["spec"]["secretName"] == secret]
    assert callers(made) == [("pipeline", settings.name)]


def test_each_certificate_names_a_caller_that_servers_know_and_only_servers_may_serve() -> None:
    members = [each for each in certificates() if not each["spec"].get("isCA")]
    assert {role for each in members for role, _ in callers(each)} == {*ROLES} - {"viewer", "operator"}
    for each in members:
        ((role, _),) = callers(each)
        assert ("server auth" in each["spec"]["usages"]) == (role in SERVERS) == ("dnsNames" in each["spec"])
        assert "client auth" in each["spec"]["usages"]


def certificates() -> list[Spec]:
    found = yaml.safe_load_all(SPEC.with_name("certificates.yaml").read_text(encoding="utf-8"))
    return [each for each in found if each["kind"] == "Certificate"]


def callers(certificate: Spec) -> list[tuple[str, str]]:
    found = [SPIFFE_ID.fullmatch(uri) for uri in certificate["spec"]["uris"]]
    return [(each["role"], each["name"]) for each in found if each]


def test_executors_share_the_folder_of_the_data(pod: Spec, executor: Spec, settings: PipelineSettings) -> None:
    def data(spec: Spec) -> tuple[str, str]:
        claim = next(each for each in spec["volumes"] if each["name"] == "data")["persistentVolumeClaim"]["claimName"]
        mount = next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "data")["mountPath"]
        return claim, mount

    assert data(pod) == data(executor)
    assert settings.audit_folder.startswith(data(pod)[1])
    assert pod["securityContext"] == executor["securityContext"]


def test_the_pod_may_do_what_drivers_do(pod: Spec, objects: dict[str, Spec]) -> None:
    account = objects["ServiceAccount"]["metadata"]["name"]
    assert pod["serviceAccountName"] == account
    assert objects["RoleBinding"]["subjects"][0]["name"] == account
    assert objects["RoleBinding"]["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    allowed = {resource: set(rule["verbs"]) for rule in objects["Role"]["rules"] for resource in rule["resources"]}
    assert {"create", "get", "list", "watch", "delete"} <= allowed["pods"] & allowed["configmaps"]


def test_what_tasks_carry_is_authenticated_and_encrypted(settings: PipelineSettings) -> None:
    for name in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
        assert options_of(settings)[name] == "true", "tasks carry passwords of clusters and the database's URL"
    settings.check_folder(settings.audit_folder)


def test_probes_ask_where_the_service_answers(pod: Spec, settings: PipelineSettings) -> None:
    container = pod["containers"][0]
    (port,) = container["ports"]
    assert settings.metrics_listen.endswith(f":{port['containerPort']}")
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [(probe["path"], probe["port"]) for probe in probes] == [
        ("/live", port["name"]),
        ("/live", port["name"]),
        ("/ready", port["name"]),
    ]


def test_an_executor_is_started_as_sparks_own_entrypoint_does() -> None:
    line = executor_line(BY_THE_DRIVER, Path("/opt/pyspark"))
    assert line[:8] == [
        "java",
        "-Xss4m",
        "-Dsecond=1",
        "-Dlast=1",
        "-Xms1024m",
        "-Xmx1024m",
        "-cp",
        ":/opt/spark/jars/*:/opt/pyspark/jars/*",
    ]
    assert line[8] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert dict(zip(line[9::2], line[10::2], strict=True))["--driver-url"] == BY_THE_DRIVER["SPARK_DRIVER_URL"]
    assert executor_line({**BY_THE_DRIVER, "JAVA_HOME": "/opt/java"}, Path("/p"))[0] == "/opt/java/bin/java"


def test_an_executor_that_nobody_ordered_says_so() -> None:
    with pytest.raises(click.ClickException, match="not started by Spark's driver: SPARK_DRIVER_URL not set"):
        executor_line({name: value for name, value in BY_THE_DRIVER.items() if name != "SPARK_DRIVER_URL"}, Path("/p"))
