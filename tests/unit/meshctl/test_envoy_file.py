"""The Envoy filter's own example, as it stands in its documentation, and what may be wrong with such a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshctl.meshfile.model import FileError, FileKind
from meshctl.meshfile.reading import parse, with_bootstrap

EXAMPLE = (Path(__file__).parents[3] / "examples" / "envoy-kafka-mesh.yaml").read_text(encoding="utf-8")


def errors_of(text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        parse(text)
    return [str(each) for each in caught.value.errors]


def edited(before: str, after: str) -> str:
    assert before in EXAMPLE
    return EXAMPLE.replace(before, after)


def test_the_example_gives_three_clusters_and_their_rules() -> None:
    file = parse(EXAMPLE)
    assert file.kind is FileKind.ENVOY
    clusters = {each.spec.cluster_name: each.spec for each in file.clusters}
    assert list(clusters) == ["kafka_c1", "kafka_c2", "kafka_c3"]
    assert list(clusters["kafka_c1"].bootstrap_servers) == [f"cluster1_node{n}:9092" for n in (1, 2, 3)]
    assert [spec.partition_count for spec in clusters.values()] == [1, 1, 5]
    assert dict(clusters["kafka_c3"].producer_config) == {"acks": "1", "linger.ms": "500"}
    assert dict(clusters["kafka_c3"].consumer_config) == {"client.id": "my-envoy-consumer"}
    assert file.rules is not None
    assert [(each.spec.match.topic_prefix, each.spec.target_cluster) for each in file.rules] == [
        ("apples", "kafka_c1"),
        ("bananas", "kafka_c2"),
        ("cherries", "kafka_c3"),
    ]


def test_the_example_expects_clients_at_its_listener_and_advertised_address() -> None:
    addresses = [(each.what, each.address, each.line) for each in parse(EXAMPLE).addresses]
    assert addresses == [("listener", "127.0.0.1:19092", 4), ("advertised address", "127.0.0.1:19092", 11)]


def test_the_example_says_which_keys_do_not_touch_traffic() -> None:
    notices = [str(each) for each in parse(EXAMPLE).notices]
    assert [notice.split(":")[0] for notice in notices] == ["line 24", "line 25", "line 27"]
    assert "kafka_c3 acks: does not touch passing traffic: each client's own acks" in notices[0]
    assert "linger.ms" in notices[1]
    assert "client.id" in notices[2]


def test_group_id_is_named_because_commits_belong_to_the_client() -> None:
    (notice,) = (each for each in parse(edited("client.id:", "group.id:")).notices if "group.id" in each.place)
    assert "commits belong to the client's group" in notice.text


def test_security_keys_count_for_every_connection_and_need_no_word() -> None:
    text = edited('linger.ms: "500"', "security.protocol: SASL_SSL\n            sasl.password: ${env:C3_PASSWORD}")
    assert not [each for each in parse(text).notices if "security" in each.place or "sasl" in each.place]


def test_a_wrong_type_is_named_with_the_right_one() -> None:
    (error,) = errors_of(edited("kafka_mesh.v3alpha.KafkaMesh", "kafka_mesh.v3.KafkaMesh"))
    assert error.startswith("line 10: listeners[0].filter_chains[0].filters[0]: '@type'")
    assert "kafka_mesh.v3.KafkaMesh" in error
    assert "kafka_mesh.v3alpha.KafkaMesh" in error


def test_other_filters_and_unknown_keys_are_named_and_left_alone() -> None:
    text = edited(
        "  - filters:\n",
        "  - filters:\n    - name: envoy.filters.network.kafka_broker\n      typed_config: {stat_prefix: x}\n",
    ).replace("        advertised_port", "        consumer_proxy_mode: StatefulConsumerProxy\n        advertised_port")
    text = "admin: {address: x}\n" + text.replace("partition_count: 5", "partition_cuont: 5")
    file = parse(text)
    notices = [str(each) for each in file.notices]
    assert any("admin: does not concern the mesh" in each for each in notices)
    assert any("filter envoy.filters.network.kafka_broker does not concern the mesh" in each for each in notices)
    assert any("consumer_proxy_mode" in each for each in notices)
    assert any("partition_cuont" in each and "did you mean partition_count?" in each for each in notices)
    assert len(file.clusters) == 3


def test_a_whole_envoy_bootstrap_with_static_resources_is_read() -> None:
    indented = "static_resources:\n" + "".join(f"  {line}\n" for line in EXAMPLE.splitlines())
    assert len(parse(indented).clusters) == 3


def test_an_empty_prefix_is_every_topic() -> None:
    file = parse(edited("topic_prefix: cherries", 'topic_prefix: ""'))
    assert file.rules is not None
    assert file.rules[2].spec.match.topic_regex == ".*"


def test_all_errors_come_at_once_in_the_order_of_lines() -> None:
    text = (
        edited("cluster2_node1:9092,", "cluster2_node1,")
        .replace("partition_count: 5", "partition_count: five")
        .replace("target_cluster: kafka_c3", "target_cluster: kafka_c4")
        .replace("topic_prefix: bananas", "topic_prefix: apples")
    )
    errors = errors_of(text)
    assert [each.split(":")[0] for each in errors] == ["line 18", "line 22", "line 31", "line 33"]
    assert "'cluster2_node1': expected host:port (for example cluster2_node1:9092)" in errors[0]
    assert "'five' is not a whole number from 1" in errors[1]
    assert "topic_prefix 'apples' is already at line 29" in errors[2]
    assert "kafka_c1, kafka_c2, kafka_c3" in errors[3]


def test_a_second_filter_and_none_at_all_are_errors() -> None:
    second = EXAMPLE + EXAMPLE.removeprefix("listeners:\n")
    assert any("a second KafkaMesh filter (the first is at line" in each for each in errors_of(second))
    (error,) = errors_of("listeners:\n- filter_chains:\n  - filters: []\n")
    assert "no filter with typed_config" in error


def test_bootstrap_overrides_an_address_of_the_file() -> None:
    file = with_bootstrap(parse(EXAMPLE), {"kafka_c1": ["127.0.0.1:1"]})
    assert list(file.clusters[0].spec.bootstrap_servers) == ["127.0.0.1:1"]
    with pytest.raises(KeyError, match="c9"):
        with_bootstrap(file, {"c9": ["127.0.0.1:1"]})
