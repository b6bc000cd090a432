"""mesh.yaml: what may stand in it, and how slips are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.rpc import routing
from meshctl.meshfile.model import FileError, FileKind
from meshctl.meshfile.reading import parse

MESH = """\
clusters:
- cluster_name: c1
  bootstrap_servers: [a:9092, "b:9092"]
- cluster_name: c2
  bootstrap_servers: c:9092, d:9092
  partition_count: 3
  producer_config:
    enable.idempotence: yes
    message.max.bytes: 1000000
rules:
- topic: orders
  target_cluster: c1
- topic_prefix: apples
  target_cluster: c2
  rule_id: fruit
- topic_regex: '[a-m].*'
  target_cluster: c9
"""

WRONG = [
    ("", "line 1: the file is empty"),
    ("a: [", "this is not YAML"),
    ("- a\n", "line 1: expected a mapping"),
    ("text", "line 1: expected a mapping (key: value lines), found 'text'"),
    ("nothing: 1\n", "neither mesh.yaml (clusters, rules) nor an Envoy configuration"),
    ("rules: 5\n", "line 1: rules: expected a list"),
    ("rules: []\nclutsers: []\n", "line 2: clutsers: unknown key; did you mean clusters?"),
    ("rules:\n- topic: a\n", "line 2: rules[0]: target_cluster is missing"),
    ("rules:\n- {target_cluster: c}\n", "Expected exactly one of topic, topic_prefix, topic_regex"),
    ("rules:\n- {topic: a, topic_prefix: b, target_cluster: c}\n", "found topic, topic_prefix"),
    ("rules:\n- {group: a, transactional_id: b, target_cluster: c}\n", "found group, transactional_id"),
    ("rules:\n- {group: '', target_cluster: c}\n", "line 2: rules[0].group: is empty"),
    ("rules:\n- {group: a}\n", "line 2: rules[0]: target_cluster is missing"),
    ("rules:\n- {group_regex: '(', target_cluster: c}\n", "rules[0].group_regex: '(' is not an RE2 expression"),
    (
        "rules:\n- {group: a, target_cluster: c,\n   shadow_topics: maybe}\n",
        "line 3: rules[0].shadow_topics: 'maybe'",
    ),
    (
        "rules:\n- {group: a, target_cluster: c, upstream_topic: x}\n",
        "only rules about a topic have it; this one is",
    ),
    ("rules:\n- {client_software: a/1}\n", "line 2: rules[0]: node_view is missing"),
    ("rules:\n- {client_software: a/1, node_view: singel}\n", "did you mean single?"),
    ("rules:\n- {client_software: a/1, node_view: single, target_cluster: c}\n", "has none; leave it out"),
    ("rules:\n- {groups: a, target_cluster: c}\n", "rules[0].groups: unknown key; did you mean group?"),
    ("rules:\n- {topic_regex: '(', target_cluster: c}\n", "rules[0].topic_regex: '(' is not an RE2 expression"),
    ("rules:\n- {topic: 'a b', target_cluster: c}\n", "'a b': topic names have 1 to 249"),
    ("rules:\n- {topic: [a], target_cluster: c}\n", "rules[0].topic: expected a single value, found a list"),
    ("rules:\n- {topic: a, target_cluster: c, rule_id: A}\n", "rules[0].rule_id: 'A'"),
    ("rules:\n- {topic: a, topic: b, target_cluster: c}\n", "rules[0].topic: this key is there twice"),
    ("clusters:\n- {cluster_name: c}\n", "clusters[0]: bootstrap_servers is missing"),
    ("clusters:\n- {cluster_name: 'c 1', bootstrap_servers: 'a:1'}\n", "clusters[0].cluster_name: 'c 1'"),
    ("clusters:\n- {cluster_name: c, bootstrap_servers: []}\n", "expected at least one host:port"),
    ("clusters:\n- {cluster_name: c, bootstrap_servers: 'a:99999'}\n", "'a:99999': expected host:port"),
    ("clusters:\n- {cluster_name: c, bootstrap_servers: 'a:1', partition_count: 0}\n", "whole number from 1"),
    (
        "clusters:\n- {cluster_name: c, bootstrap_servers: 'a:1', producer_config: {acks: }}\n",
        "clusters[0].producer_config.acks: expected a single value, found nothing",
    ),
    (
        "clusters:\n- {cluster_name: c, bootstrap_servers: 'a:1', producer_config: {bootstrap.servers: x}}\n",
        "addresses belong in bootstrap_servers",
    ),
]
"""Files that `apply` refuses, each with a part of its message."""


def errors_of(text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        parse(text)
    return [str(each) for each in caught.value.errors]


def test_clusters_and_rules_are_read_in_their_order() -> None:
    file = parse(MESH)
    assert file.kind is FileKind.MESH
    assert [list(each.spec.bootstrap_servers) for each in file.clusters] == [["a:9092", "b:9092"], ["c:9092", "d:9092"]]
    assert file.rules is not None
    kinds = [each.spec.match.WhichOneof("kind") for each in file.rules]
    assert kinds == ["topic", "topic_prefix", "topic_regex"]
    assert file.rules[1].spec.rule_id == "fruit"


def test_rules_are_about_more_than_topics() -> None:
    file = parse("""\
rules:
- {topic: orders, target_cluster: c1, upstream_topic: 'shop.{topic}'}
- {group_prefix: 'Shop / ', target_cluster: c1, shadow_topics: yes}
- {transactional_id_regex: 'pay-\\d+', target_cluster: c2, span_clusters: true, rule_id: pay}
- {client_software_prefix: kafkajs/, node_view: per_cluster}
- {group_prefix: '', target_cluster: c2}
""")
    assert file.rules is not None
    assert [each.spec for each in file.rules] == [
        routing.RuleSpec(match=routing.RuleMatch(topic="orders"), target_cluster="c1", upstream_topic="shop.{topic}"),
        routing.RuleSpec(match=routing.RuleMatch(group_prefix="Shop / "), target_cluster="c1", shadow_topics=True),
        routing.RuleSpec(
            rule_id="pay",
            match=routing.RuleMatch(transactional_id_regex="pay-\\d+"),
            target_cluster="c2",
            span_clusters=True,
        ),
        routing.RuleSpec(
            match=routing.RuleMatch(client_software_prefix="kafkajs/"), node_view=routing.NODE_VIEW_PER_CLUSTER
        ),
        routing.RuleSpec(match=routing.RuleMatch(group_regex=".*"), target_cluster="c2"),
    ]
    assert file.notices[0].text == "an empty prefix means every group; kept as group_regex '.*'"


def test_values_of_properties_are_texts_as_librdkafka_reads_them() -> None:
    config = parse(MESH).clusters[1].spec.producer_config
    assert dict(config) == {"enable.idempotence": "true", "message.max.bytes": "1000000"}


def test_a_file_without_rules_differs_from_one_with_none() -> None:
    assert parse("clusters: []\n").rules is None
    assert parse("rules: []\n").rules == ()


def test_anchors_and_merge_keys_are_understood() -> None:
    first = "- &base {cluster_name: c1, bootstrap_servers: 'a:1', partition_count: 2}\n"
    file = parse(f"clusters:\n{first}- {{<<: *base, cluster_name: c2}}\n")
    assert [(each.spec.cluster_name, each.spec.partition_count) for each in file.clusters] == [("c1", 2), ("c2", 2)]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_what_is_wrong_is_named_with_its_place(text: str, expected: str) -> None:
    errors = errors_of(text)
    assert any(expected in each for each in errors), errors


def test_a_secret_in_the_file_is_refused_and_not_repeated() -> None:
    text = "clusters:\n- {cluster_name: c, bootstrap_servers: 'a:1', producer_config: {sasl.password: hunter2}}\n"
    (error,) = errors_of(text)
    assert "${env:NAME}" in error
    assert "hunter2" not in error
    parse(text.replace("hunter2", "'${env:C_PASSWORD}'"))


def test_the_same_cluster_or_rule_id_twice_is_refused() -> None:
    cluster = "- {cluster_name: c, bootstrap_servers: 'a:1'}\n"
    assert "c: this cluster is already at line 2" in errors_of(f"clusters:\n{cluster}{cluster}")[0]
    rules = "rules:\n- {topic: a, target_cluster: c, rule_id: x}\n- {topic: b, target_cluster: c, rule_id: x}\n"
    assert "rule_id x is already at line 2" in errors_of(rules)[0]


def test_the_example_of_the_repository_is_right() -> None:
    file = parse((Path(__file__).parents[3] / "examples" / "mesh.yaml").read_text(encoding="utf-8"))
    assert len(file.clusters) == 2
    assert file.rules is not None
    assert len(file.rules) == 9
    assert len(file.record_rules or ()) == 1
    assert not file.notices  # security and connection properties count for every connection
