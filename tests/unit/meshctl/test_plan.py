"""What applying a file would do."""

from __future__ import annotations

import pytest

from mesh.rpc import admin, routing
from meshctl.meshfile.action import Action
from meshctl.meshfile.model import FileError
from meshctl.meshfile.plan import Plan, make
from meshctl.meshfile.reading import parse

FILE = """\
clusters:
- {cluster_name: c1, bootstrap_servers: 'a:1'}
- {cluster_name: c2, bootstrap_servers: 'b:1', producer_config: {sasl.password: '${env:NEW}'}}
rules:
- {topic_prefix: apples, target_cluster: c1}
- {topic_prefix: bananas, target_cluster: c2}
"""


def cluster(name: str, address: str, **config: str) -> admin.Cluster:
    spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=[address], producer_config=config)
    return admin.Cluster(name=f"clusters/{name}", spec=spec, revision=7)


def rule(prefix: str, target: str) -> admin.Rule:
    match = routing.RuleMatch(topic_prefix=prefix)
    spec = routing.RuleSpec(rule_id=f"{prefix}-prefix", match=match, target_cluster=target)
    return admin.Rule(name=f"rules/{prefix}-prefix", spec=spec)


def gateway(address: str) -> admin.Member:
    return admin.Member(name="members/g1", kind=admin.MEMBER_KIND_GATEWAY, address=address)


def plan(
    text: str = FILE,
    *,
    clusters: tuple[admin.Cluster, ...] = (),
    rules: tuple[admin.Rule, ...] = (),
    members: tuple[admin.Member, ...] = (),
    replace: bool = False,
) -> Plan:
    return make(parse(text), clusters=clusters, rules=rules, rules_revision=3, members=members, replace=replace)


def actions(of: Plan) -> list[tuple[str, str]]:
    steps = [(step.action.value, step.spec.cluster_name) for step in of.clusters]
    return steps + [(step.action.value, step.spec.match.topic_prefix) for step in of.rules]


def test_an_empty_mesh_gets_everything() -> None:
    made = plan()
    assert actions(made) == [("create", "c1"), ("create", "c2"), ("create", "apples"), ("create", "bananas")]
    assert made.needs_new_clusters


def test_what_is_so_already_stays_unchanged() -> None:
    clusters = (cluster("c1", "a:1"), cluster("c2", "b:1", **{"sasl.password": "${env:NEW}"}))
    made = plan(clusters=clusters, rules=(rule("apples", "c1"), rule("bananas", "c2")), replace=True)
    assert {action for action, _name in actions(made)} == {"unchanged"}
    assert not made.changes_rules
    assert not made.cluster_changes


def test_a_cluster_that_differs_is_updated_and_no_secret_shown() -> None:
    made = plan(clusters=(cluster("c1", "old:1"), cluster("c2", "b:1", **{"sasl.password": "${env:OLD}"})))
    first, second = made.cluster_changes
    assert (first.action, first.fields, first.revision) == (Action.UPDATE, ("bootstrap_servers",), 7)
    assert first.detail == "bootstrap_servers old:1 -> a:1"
    assert (second.fields, second.detail) == (("producer_config",), "producer_config sasl.password")


def test_without_replace_other_rules_stay_in_their_order() -> None:
    made = plan(rules=(rule("zebras", "c1"), rule("bananas", "c1")), clusters=(cluster("c1", "a:1"),))
    assert [each.match.topic_prefix for each in made.rule_set] == ["zebras", "bananas", "apples"]
    assert [each.target_cluster for each in made.rule_set] == ["c1", "c2", "c1"]
    assert actions(made)[2:] == [("update", "bananas"), ("create", "apples")]
    assert made.rule_set[1].rule_id == "bananas-prefix"


def test_with_replace_the_file_is_the_whole_rule_set() -> None:
    made = plan(rules=(rule("bananas", "c2"), rule("zebras", "c1"), rule("apples", "c1")), replace=True)
    assert [each.match.topic_prefix for each in made.rule_set] == ["apples", "bananas"]
    assert actions(made)[2:] == [("move", "apples"), ("unchanged", "bananas"), ("remove", "zebras")]


def test_one_rule_that_goes_from_last_to_first_is_one_move() -> None:
    names = ["apples", "bananas", "cherries", "dates", "elderberries"]
    text = "rules:\n" + "".join(f"- {{topic_prefix: {name}, target_cluster: c1}}\n" for name in names)
    before = tuple(rule(name, "c1") for name in (*names[1:], names[0]))
    made = plan(text, clusters=(cluster("c1", "a:1"),), rules=before, replace=True)
    assert [step.spec.match.topic_prefix for step in made.rules if step.action is Action.MOVE] == ["apples"]
    assert made.changes_rules


def test_replace_without_rules_in_the_file_is_refused() -> None:
    with pytest.raises(FileError, match="--replace would remove them all"):
        plan("clusters: []\n", replace=True)
    assert actions(plan("rules: []\n", rules=(rule("apples", "c1"),), replace=True)) == [("remove", "apples")]


def test_a_target_that_nobody_knows_is_refused() -> None:
    with pytest.raises(FileError, match="'c3' is neither in the file nor registered") as caught:
        plan("rules:\n- {topic: a, target_cluster: c3}\n", clusters=(cluster("c1", "a:1"),))
    assert caught.value.errors[0].line == 2


def test_two_names_for_one_address_are_refused() -> None:
    clusters = "{cluster_name: c1, bootstrap_servers: 'a:1'}, {cluster_name: c2, bootstrap_servers: 'b:1,a:1'}"
    with pytest.raises(FileError, match="c2: a:1 is also an address of c1"):
        plan(f"clusters: [{clusters}]\n")


def test_a_registered_cluster_keeps_its_name_whatever_the_file_calls_it() -> None:
    made = plan(FILE.replace("c1", "kafka_c1"), clusters=(cluster("c1", "a:1"),), rules=(rule("apples", "c1"),))
    assert actions(made) == [
        ("unchanged", "c1"),
        ("create", "c2"),
        ("unchanged", "apples"),
        ("create", "bananas"),
    ]
    [notice] = made.notices
    assert str(notice) == "line 2: kafka_c1: a:1 is registered as c1, which is its name in this mesh"


def test_two_names_of_the_file_for_one_registered_cluster_are_refused() -> None:
    registered = cluster("c9", "a:1")
    registered.spec.bootstrap_servers.append("b:1")
    with pytest.raises(FileError, match="c2: b:1 is an address of c9, and so is c1; a cluster has one name"):
        plan(clusters=(registered,))


ENVOY = """\
listeners:
- address: {socket_address: {address: 127.0.0.1, port_value: 19092}}
  filter_chains:
  - filters:
    - typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.kafka_mesh.v3alpha.KafkaMesh
        advertised_host: localhost
        advertised_port: 19092
        upstream_clusters: []
        forwarding_rules: []
"""


@pytest.mark.parametrize("address", ["127.0.0.1:19092", "localhost:19092", "0.0.0.0:19092"])
def test_the_running_gateways_address_needs_no_word(address: str) -> None:
    assert not plan(ENVOY, members=(gateway(address),)).notices


def test_an_address_that_differs_from_the_gateways_is_named() -> None:
    notices = [str(each) for each in plan(ENVOY, members=(gateway("127.0.0.1:29092"),)).notices]
    assert len(notices) == 2
    assert notices[0].startswith("line 2: listener 127.0.0.1:19092: differs from the running gateway's")
    assert "127.0.0.1:29092" in notices[1]


def test_without_a_gateway_there_is_nothing_to_compare_with() -> None:
    assert all("no gateway is connected" in each.text for each in plan(ENVOY).notices)


RULES = """\
rules:
- {topic: orders, target_cluster: c1, upstream_topic: 'shop.{topic}'}
- {group: shop, target_cluster: c1, shadow_topics: true}
- {client_software_prefix: kafkajs/, node_view: single}
"""


def test_what_else_a_rule_says_is_part_of_the_plan() -> None:
    clusters = (cluster("c1", "a:1"),)
    made = plan(RULES, clusters=clusters)
    now = [admin.Rule(spec=step.spec) for step in made.rules]
    assert [step.action for step in plan(RULES, clusters=clusters, rules=tuple(now), replace=True).rules] == [
        Action.UNCHANGED
    ] * 3
    topic, group, client = plan(
        RULES.replace("shop.{topic}", "s.{topic}").replace("true", "false"), clusters=clusters, rules=tuple(now)
    ).rules
    assert (topic.action, topic.detail) == (Action.UPDATE, "topic orders -> c1 as s.{topic} (was c1 as shop.{topic})")
    assert (group.action, group.detail) == (Action.UPDATE, "group shop -> c1 (was c1 with shadow topics)")
    assert (client.action, client.detail) == (Action.UNCHANGED, "client software prefix kafkajs/ -> a single node")
