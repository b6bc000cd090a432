"""Policies let each member call those that it calls, and servers beyond the mesh that its settings name."""

from __future__ import annotations

import pytest
import yaml

from tests.kubernetes import charts
from tests.kubernetes.charts import Object

EGRESS = "networkPolicy.egress.enabled=true"


@pytest.mark.parametrize("values", ["default", "full"])
def test_budgets_and_policies_select_pods_that_exist(values: str) -> None:
    labels = [each.labels for each in charts.workloads(values)]
    labels += [yaml.safe_load(each["data"]["executor.yaml"])["metadata"]["labels"]
               for each in charts.of_kind(values, "ConfigMap").values()]  # fmt: skip
    selectors = [each["spec"]["selector"] for each in charts.of_kind(values, "PodDisruptionBudget").values()]
    selectors += [each["spec"]["podSelector"] for each in charts.of_kind(values, "NetworkPolicy").values()]
    assert len(selectors) >= 5
    for selector in selectors:
        assert any(selector["matchLabels"].items() <= each.items() for each in labels)


def test_policies_let_each_member_call_those_that_it_calls() -> None:
    policies = policies_of("full")
    calls = [
        ("router", "control", 7070, "grpc"),
        ("gateway", "router", 7071, "grpc"),
        ("pipeline", "control", 7070, "grpc"),
        ("apply", "control", 7070, "grpc"),
        ("console", "control", 7070, "grpc"),
        ("console", "control", 7072, "tokens"),
        ("console", "gateway", 9093, 9093),
        ("pipeline", "gateway", 9092, 9092),
        ("executor", "gateway", 9092, 9092),
        ("executor", "pipeline", None, None),
        ("pipeline", "executor", None, None),
        ("executor", "executor", None, None),
    ]
    for caller, called, egress, ingress in calls:
        assert admits(policies[caller]["egress"], "to", called, egress), (caller, called)
        assert admits(policies[called]["ingress"], "from", caller, ingress), (caller, called)
    assert not admits(policies["control"]["ingress"], "from", "gateway", "grpc")
    assert not admits(policies["router"]["ingress"], "from", "pipeline", "grpc")


@pytest.mark.parametrize(("values", "ports"), [("full", {"grpc", "tokens"}), ("default", {"grpc"})])
def test_people_reach_control_by_certificates_and_by_tokens_members_by_certificates_alone(
    values: str, ports: set[str]
) -> None:
    members, people, scraped = policies_of(values)["control"]["ingress"]
    assert {each["port"] for each in members["ports"]} == {"grpc"}
    assert {each["port"] for each in people["ports"]} == ports
    assert {each["port"] for each in scraped["ports"]} == {"metrics"}
    ops = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}}
    labelled = {"podSelector": {"matchLabels": {"kafka-mesh/calls-control": "true"}}, "namespaceSelector": {}}
    others = [each for each in people["from"] if "app.kubernetes.io/component" not in str(each)]
    assert others == ([labelled, ops] if values == "full" else [labelled])


def test_browsers_come_to_the_console_by_the_ingress_that_values_name() -> None:
    browsers, scraped = policies_of("full")["console"]["ingress"]
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    assert browsers == {"ports": [{"port": "http"}], "from": [ingress]}
    assert scraped["ports"] == [{"port": "metrics"}]


def admits(rules: list[Object], direction: str, component: str, port: object) -> bool:
    """Whether a rule names the component as a peer, with the port or with all ports."""
    for rule in rules:
        peers = [each.get("podSelector", {}).get("matchLabels", {}) for each in rule.get(direction, ())]
        named = component in {each.get("app.kubernetes.io/component") for each in peers}
        if named and ("ports" not in rule or port in {each["port"] for each in rule["ports"]}):
            return True
    return False


BROKERS, DATABASE = ("198.51.100.0/24", 9093), ("203.0.113.7/32", 5432)
ISSUERS = {("203.0.113.8/32", port) for port in (443, 8443)}
REGISTRY = {("203.0.113.9/32", port) for port in (8081, 443)}
TRACING = {("203.0.113.10/32", port) for port in (4317, 4318)}
KEY_SERVICE, OBJECT_STORE = ("203.0.113.11/32", 8200), ("203.0.113.12/32", 443)
SPARK = {BROKERS, DATABASE, *ISSUERS, *REGISTRY, OBJECT_STORE}
BEYOND = {
    "control": {BROKERS, DATABASE, *ISSUERS},
    "router": {BROKERS, *ISSUERS, *REGISTRY, *TRACING},
    "gateway": {BROKERS, *ISSUERS, *REGISTRY, *TRACING, KEY_SERVICE},
    "apply": set(),
    "console": REGISTRY,
    "pipeline": {*SPARK, ("everywhere", 443), ("everywhere", 6443)},
    "executor": SPARK,
}
"""By member: the servers of values/full.yaml and their ports."""


@pytest.mark.parametrize("member", BEYOND)
def test_a_member_reaches_the_servers_of_its_settings_and_no_other(member: str) -> None:
    assert beyond(policies_of("full")[member]["egress"]) == BEYOND[member]


def test_without_peers_brokers_and_the_database_are_anywhere_and_other_servers_are_closed() -> None:
    run = charts.template("--set", EGRESS)
    found = {
        each["metadata"]["name"].removeprefix("kafka-mesh-"): beyond(each["spec"]["egress"])
        for each in yaml.safe_load_all(run.stdout)
        if each and each["kind"] == "NetworkPolicy"
    }
    brokers = ("everywhere", 9092)
    assert found == {"control": {brokers, ("everywhere", 5432)}, "router": {brokers}, "gateway": {brokers}}


REFUSED = {
    "a registry behind a closed way": ("routers.settings.SCHEMA_REGISTRY_URL=http://registry:8081",
        "closes the way to routers.settings.SCHEMA_REGISTRY_URL: name its peers in networkPolicy.egress.registry"),
    "a registry of the pipeline": ("pipeline.settings.SCHEMA_REGISTRY_URL=http://registry:8081",
        "closes the way to pipeline.settings.SCHEMA_REGISTRY_URL: name its peers in networkPolicy.egress.registry"),
    "a receiver of spans": ("gateway.settings.TRACING_ENDPOINT=http://spans:4317",
        "closes the way to gateway.settings.TRACING_ENDPOINT: name its peers in networkPolicy.egress.tracing"),
    "a key service": ("gateway.settings.KEY_SERVICE=vault:https://keys:8200/transit",
        "closes the way to gateway.settings.KEY_SERVICE: name its peers in networkPolicy.egress.keyService"),
    "an issuer": ("control.settings.TOKEN_ISSUERS=[]",
        "closes the way to control.settings.TOKEN_ISSUERS: name the peers in networkPolicy.egress.issuers"),
    "another port": ("routers.settings.SCHEMA_REGISTRY_URL=http://registry:9081,networkPolicy.egress.registry[0].podSelector.a=b",
        "has the port 9081, which networkPolicy.egress.registryPorts does not name: add it"),
    "the port of a scheme": ("gateway.settings.TRACING_ENDPOINT=https://spans/otlp,networkPolicy.egress.tracing[0].podSelector.a=b",
        "has the port 443, which networkPolicy.egress.tracingPorts does not name: add it"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_setting_that_policies_cut_off_is_refused(change: str, sentence: str) -> None:
    run = charts.template("--set", f"{EGRESS},{change}")
    assert run.returncode != 0
    assert sentence in run.stderr
    assert charts.template("--set", change).returncode == 0, "without egress policies the way is open"


def policies_of(values: str) -> dict[str, Object]:
    """The specifications of policies, by member."""
    found = charts.of_kind(values, "NetworkPolicy")
    return {name.removeprefix("kafka-mesh-"): each["spec"] for name, each in found.items()}


def beyond(rules: list[Object]) -> set[tuple[str, int]]:
    """The addresses and ports beyond the mesh that the rules allow; DNS is left out."""
    found = set()
    for rule in rules:
        peers = [each for each in rule.get("to", ({"ipBlock": {"cidr": "everywhere"}},)) if "ipBlock" in each]
        found |= {(peer["ipBlock"]["cidr"], port["port"]) for peer in peers for port in rule["ports"]}
    return found - {("everywhere", 53)}
