"""Examples for operators of others name what the chart has: their own definitions are not here to check them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mesh.acls import Operation, ResourceType
from mesh.quotas import Key
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey
from tests.kubernetes import charts
from tests.plain_english import ROOT

EXAMPLES = ROOT / "deploy" / "kubernetes"
PAGES = ROOT / "docs" / "how-to"
LABEL = "strimzi.io/cluster"
CONTROL_POLICY = ("NetworkPolicy", "kafka-mesh-control")


def objects(name: str) -> list[Any]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def operator(name: str) -> tuple[dict[str, Any], Any]:
    """The environment of the operator's patch, and its pod."""
    (patch,) = objects(f"strimzi/{name}-operator.yaml")
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == f"strimzi-{name}-operator", "as in Strimzi's own Deployment, so that the patch meets it"
    found = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert len(found) == len(container["env"]), "no variable twice"
    return found, pod


def test_the_chart_takes_the_secret_that_cloudnativepg_makes(tmp_path: Path) -> None:
    (cluster,) = objects("postgresql.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("postgresql.cnpg.io/v1", "Cluster")
    assert cluster["spec"]["instances"] >= cluster["spec"]["postgresql"]["synchronous"]["number"] + 2
    page = (PAGES / "kubernetes.md").read_text(encoding="utf-8")
    (values,) = re.findall(r"^```yaml\n# database-values.yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (commented,) = re.findall(r"^#   (database: .*)$", (EXAMPLES / "postgresql.yaml").read_text("utf-8"), re.MULTILINE)
    assert yaml.safe_load(values) == yaml.safe_load(commented)
    file = tmp_path / "database-values.yaml"
    file.write_text(values, encoding="utf-8")
    run = charts.template("--values", str(file))
    # CloudNativePG: the Secret of the application's owner is CLUSTER-app, and its whole address is the key `uri`
    expected = {"secretKeyRef": {"name": f"{cluster['metadata']['name']}-app", "key": "uri"}}
    control = next(
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(run.stdout)
        if each and (each["kind"], each["metadata"]["name"]) == ("Deployment", "kafka-mesh-control")
    )
    for container in [*control["initContainers"], *control["containers"]]:
        (given,) = [each["valueFrom"] for each in container["env"] if each["name"].endswith("_DATABASE_URL")]
        assert given == expected


def test_policies_reach_the_pods_of_cloudnativepg(tmp_path: Path) -> None:
    (cluster,) = objects("postgresql.yaml")
    text = (EXAMPLES / "postgresql.yaml").read_text(encoding="utf-8")
    (values,) = re.findall(r"^#   (networkPolicy: .*)$", text, re.MULTILINE)
    file = tmp_path / "values.yaml"
    file.write_text(values, encoding="utf-8")
    run = charts.template("--values", str(file), "--set", "networkPolicy.egress.enabled=true")
    rendered = [each for each in yaml.safe_load_all(run.stdout) if each]
    (policy,) = [each["spec"] for each in rendered if (each["kind"], each["metadata"]["name"]) == CONTROL_POLICY]
    selector = {"podSelector": {"matchLabels": {"cnpg.io/cluster": cluster["metadata"]["name"]}}}
    assert {"ports": [{"port": 5432}], "to": [selector]} in policy["egress"]


@pytest.mark.parametrize("name", ["topic", "user"])
def test_operators_of_strimzi_call_the_gateway(name: str) -> None:
    found, _ = operator(name)
    namespaces = {each["metadata"]["namespace"] for each in objects("strimzi/resources.yaml")}
    run = charts.template(f"--namespace={namespaces.pop()}")
    (advertised,) = re.findall(r"KAFKA_MESH_GATEWAY_ADVERTISED, value: \"(.*)\"", run.stdout)
    assert found["STRIMZI_KAFKA_BOOTSTRAP_SERVERS"] == advertised


def test_operators_of_strimzi_log_in_by_a_mechanism_of_the_gateway() -> None:
    topic, pod = operator("topic")
    user, _ = operator("user")
    (mechanisms,) = [
        each["value"].split()
        for each in charts.workload("default", "gateway").container["env"]
        if each["name"].endswith("_SASL_MECHANISMS")
    ]
    assert topic["STRIMZI_SASL_MECHANISM"].upper() in mechanisms
    text = (EXAMPLES / "strimzi" / "user-operator.yaml").read_text(encoding="utf-8")
    (properties,) = re.findall(r"^#   security.protocol=(\w+)\n#   sasl.mechanism=(\S+)$", text, re.MULTILINE)
    assert properties[0] == topic["STRIMZI_SECURITY_PROTOCOL"]
    assert properties[1] in mechanisms
    (authority,) = [each["secret"]["secretName"] for each in pod["volumes"]]
    assert authority == user["STRIMZI_CLUSTER_CA_CERT_SECRET_NAME"]
    assert f"gateway.clientCaSecret: {user['STRIMZI_CA_CERT_NAME']}" in page()


def test_resources_have_the_label_that_operators_look_for() -> None:
    labels = {f"{LABEL}={each['metadata']['labels'][LABEL]}" for each in objects("strimzi/resources.yaml")}
    assert labels == {operator("topic")[0]["STRIMZI_RESOURCE_LABELS"], operator("user")[0]["STRIMZI_LABELS"]}


def test_a_user_of_the_example_has_acls_and_quotas_that_the_mesh_knows() -> None:
    (user,) = [each for each in objects("strimzi/resources.yaml") if each["kind"] == "KafkaUser"]
    for each in user["spec"]["authorization"]["acls"]:
        assert each["resource"]["type"].upper() in ResourceType.__members__
        assert {name.upper() for name in each["operations"]} <= Operation.__members__.keys()
    keys = {re.sub(r"(?=[A-Z])", "_", key).lower() for key in user["spec"]["quotas"]}
    assert keys <= {key.value for key in Key}
    assert "controller_mutation_rate" not in {key.value for key in Key}, "the page says so"


def test_gateways_serve_each_api_of_the_page() -> None:
    known = {re.sub("_", "", key.name).lower(): key for key in ApiKey}
    cells = re.findall(r"^\| [^|]+ \| ((?:[A-Z]\w+(?:, )?)+) \|", page(), re.MULTILINE)
    named = {name.strip() for cell in cells for name in cell.split(",")}
    assert len(named) >= 12
    assert {name for name in named if known[name.lower()] not in HANDLERS} == set()


def page() -> str:
    return (PAGES / "strimzi-resources.md").read_text(encoding="utf-8")
