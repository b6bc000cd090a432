"""The chart renders objects that Kubernetes takes, and refuses wrong values with a sentence."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from docs import chart
from tests.kubernetes import charts, tools
from tests.plain_english import ROOT

PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
REFUSED = {
    "an unknown value": ("gateway.replica=3", "additional properties 'replica' not allowed"),
    "a setting that does not exist": ("control.settings.LOGLEVEL=DEBUG", "value must be one of"),
    "a setting that the chart sets": ("gateway.settings.LISTEN=0.0.0.0:9092", "value must be one of"),
    "an address that the chart sets": ("control.settings.TOKEN_LISTEN=0.0.0.0:7071", "value must be one of"),
    "a password": ("home.properties.sasl\\.password=secret", "does not match pattern"),
    "a wrong kind": ("gateway.kind=DaemonSet", "value must be one of 'StatefulSet', 'Deployment'"),
    "a sparkling clear text": ("pipeline.sparkProperties.spark\\.authenticate=false", "sparkProperties"),
    "a tag of no router": ("routers.imageTags.router-3=0.2.0", "the routers are router-1, router-2: name one of these"),
    "a tag without a router": ("routers.imageTags.first=0.2.0",
        "at '/routers/imageTags': additional properties 'first' not allowed"),
    "no router": ("routers.count=0", "minimum: got 0, want 1"),
    "no home cluster": ("home.existingConfigMap=", "no home cluster is named: set home.bootstrapServers"),
    "pods without certificates": ("gateway.kind=Deployment", "each pod has a new name and needs a certificate for it"),
    "clients without a proof": ("gateway.listeners[0].name=a,gateway.listeners[0].port=9092,"
        "gateway.listeners[0].security=PLAINTEXT", "clients of listener a of the gateway do not prove who they are"),
    "hosts without SNI": ("gateway.allowInsecure=true,gateway.listeners[0].name=a,gateway.listeners[0].port=9092,"
        "gateway.listeners[0].security=PLAINTEXT,gateway.listeners[0].advertised={node}.example.com:9092",
        "listener a of the gateway advertises {node} without TLS"),
    "a listener at the port of metrics": ("gateway.listeners[0].name=a,gateway.listeners[0].port=7172,"
        "gateway.listeners[0].security=SASL_SSL", "listener a of the gateway has the port 7172 of metrics"),
    "TLS without a certificate": ("gateway.tlsSecret=", "name its Secret in gateway.tlsSecret"),
    "log-ins without users": ("gateway.usersFromControl=false", "nobody can log in at listener kafka-tls"),
    "tokens without an issuer": ("gateway.listeners[0].name=a,gateway.listeners[0].port=9092,"
        "gateway.listeners[0].security=SASL_SSL,gateway.listeners[0].mechanisms[0]=OAUTHBEARER",
        "listener a of the gateway takes tokens and knows no issuer"),
    "two sources of users": ("gateway.usersSecret=users", "users come from control and from a file"),
    "more replicas at least than at most": ("gateway.autoscaling.minReplicas=20", "raise maxReplicas"),
    "a pipeline that cannot log in": ("pipeline.enabled=true", "name the Secret in pipeline.secretSettings"),
}  # fmt: skip


@pytest.mark.parametrize("values", charts.SETS)
def test_helm_finds_no_fault(values: str) -> None:
    release = f"--kube-version={tools.kubernetes_release()}"
    run = charts.helm("lint", "--strict", str(chart.CHART), release, *charts.options(values))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("values", charts.SETS)
def test_each_object_fits_the_schema_of_its_kind(values: str) -> None:
    executors = [each["data"]["executor.yaml"] for each in charts.of_kind(values, "ConfigMap").values()]
    verdicts = conform("\n---\n".join([charts.text(values), *executors]))
    assert [each for each in verdicts if each["status"] != "statusValid"] == []
    assert len(verdicts) == len(charts.objects(values)) + len(executors)


def test_an_object_that_does_not_fit_is_found() -> None:
    wrong = (
        charts.text("default").replace("  replicas: 2\n", "  replica: 2\n").replace("clusterIP: None", "clusterIP: 7")
    )
    wrong = wrong.replace("maxUnavailable: 1, maxSurge: 0", "maxUnavailable: [1], maxSurge: 0")
    found = {each["kind"] for each in conform(wrong) if each["status"] == "statusInvalid"}
    assert found == {"Deployment", "StatefulSet", "Service"}


@pytest.mark.parametrize(("change", "sentence"), REFUSED.values(), ids=REFUSED)
def test_wrong_values_are_refused_with_a_sentence(change: str, sentence: str) -> None:
    run = charts.template("--set", change.replace("{", "\\{").replace("}", "\\}"))
    assert run.returncode != 0
    assert sentence in run.stderr


def test_the_values_of_the_page_are_taken(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n# mesh-values.yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "mesh-values.yaml"
    file.write_text(example, encoding="utf-8")
    run = charts.template("--values", str(file))
    assert run.returncode == 0, run.stderr
    assert "kafka-mesh-admin-ada" in run.stdout


def test_the_page_builds_each_image_of_the_chart() -> None:
    ((services, tag),) = re.findall(r"^for service in ([a-z ]+); do\n.* -t (\S+) \.$", PAGE, re.MULTILINE)
    built = {tag.replace("$service", service) for service in services.split()}
    registry = ["--set", "image.registry=registry.example.com/team", "--set", "image.tag=0.1.0"]
    run = charts.template(*charts.options("full"), *registry)
    assert built == set(re.findall(r"image: (\S+)", run.stdout))
    for service in services.split():
        assert (ROOT / "locks" / f"{service}.txt").is_file(), "deploy/Dockerfile installs by this lock"


def test_the_schema_has_the_settings_that_exist() -> None:
    ((path, text),) = chart.files().items()
    assert path.read_text(encoding="utf-8") == text, "run: make reference"


def test_the_schema_has_each_value_and_no_other() -> None:
    schema = json.loads(chart.SCHEMA.read_text(encoding="utf-8"))
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))

    def compare(shape: dict[str, object], given: object, where: str) -> None:
        properties = shape.get("properties")
        if not isinstance(properties, dict) or not isinstance(given, dict) or not given:
            return
        assert set(properties) - {"global"} == set(given), where
        for name, each in given.items():
            compare(properties[name], each, f"{where}.{name}")

    compare(schema, values, "values")


def conform(manifests: str) -> list[dict[str, str]]:
    where = f"{tools.schemas()}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    command = [str(tools.program("kubeconform")), "-strict", "-output=json", "-verbose", f"-schema-location={where}"]
    run = subprocess.run(command, input=manifests, capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout, run.stderr
    found: list[dict[str, str]] = json.loads(run.stdout)["resources"]
    return found
