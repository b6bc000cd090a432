"""`kafka-mesh produce` and `consume` against a real cluster, checked with plain clients."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from local.clients import consume, produce
from tests.fixtures.clusters import KafkaCluster

WITHIN_S = 60
QUIET_S = 10  # longer than a group needs to form


@pytest.fixture
def bootstrap(kafka_c1: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KAFKA_MESH_BOOTSTRAP", kafka_c1.bootstrap)
    return kafka_c1.bootstrap


@pytest.fixture
def one_partition(bootstrap: str, topic: str) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WITHIN_S)
    yield topic
    admin.delete_topics([topic])[topic].result(WITHIN_S)


def consumed(*arguments: str) -> list[str]:
    result = CliRunner().invoke(consume, [*arguments, "--timeout", str(WITHIN_S)])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_lines_become_records_and_records_lines(one_partition: str) -> None:
    result = CliRunner().invoke(produce, [one_partition], input="one\ntwo\r\n\nfour")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"4 records to {one_partition}: partition 0 offsets 0-3\n"
    assert consumed(one_partition, "-n", "4") == ["one", "two", "", "four"]


def test_a_line_that_is_refused_ends_it_and_those_before_it_arrive(one_partition: str) -> None:
    too_large = CliRunner().invoke(produce, [one_partition], input="one\n" + "x" * 2_000_000 + "\n")
    assert too_large.exit_code == 1
    assert too_large.stdout == f"1 record to {one_partition}: partition 0 offset 0\n"
    assert "Error: a record of 2000000 bytes is refused: Unable to produce message" in too_large.stderr
    no_key = CliRunner().invoke(produce, [one_partition, "--key-separator", ":"], input="k:two\nthree\n")
    assert (no_key.exit_code, "1 record to" in no_key.stdout) == (1, True)
    assert consumed(one_partition, "-n", "2") == ["one", "two"]


def test_a_partition_that_is_not_there_is_named(one_partition: str) -> None:
    result = CliRunner().invoke(produce, [one_partition, "-m", "x", "--partition", "7", "--timeout", "20"])
    assert result.exit_code == 1
    assert f"1 not delivered to {one_partition}: it has no partition 7" in result.stderr


def test_keys_headers_and_bytes_come_out_in_json(one_partition: str, bootstrap: str) -> None:
    arguments = [one_partition, "-m", "k:v:w", "--key-separator", ":", "--header", "trace=abc", "--partition", "0"]
    assert CliRunner().invoke(produce, arguments).stdout == f"1 record to {one_partition}: partition 0 offset 0\n"
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(one_partition, b"\xff\x00")
    producer.flush(WITHIN_S)
    text, binary = (json.loads(line) for line in consumed(one_partition, "-n", "2", "--format", "json"))
    assert (text["key"], text["value"], text["offset"]) == ("k", "v:w", 0)
    assert text["headers"] == [{"name": "trace", "value": "abc"}]
    assert (binary["key"], binary["value"]) == (None, {"base64": "/wA="})
    assert consumed(one_partition, "-n", "1", "--format", "key-value") == ["k\tv:w"]


def test_a_group_goes_on_where_it_stopped(one_partition: str, group: str) -> None:
    CliRunner().invoke(produce, [one_partition], input="one\ntwo\nthree\n")
    assert consumed(one_partition, "-g", group, "--from-beginning", "-n", "2") == ["one", "two"]
    assert consumed(one_partition, "-g", group, "-n", "1") == ["three"]


def test_too_few_records_end_with_1(one_partition: str) -> None:
    CliRunner().invoke(produce, [one_partition, "-m", "one"])
    result = CliRunner().invoke(consume, [one_partition, "-n", "2", "--timeout", str(QUIET_S)])
    assert result.exit_code == 1
    assert result.stdout == "one\n"
    assert "1 of 2 records came" in result.stderr


def test_a_record_that_is_not_delivered_ends_with_1(one_partition: str) -> None:
    result = CliRunner().invoke(produce, [one_partition, "-m", "x", "--partition", "7"])
    assert result.exit_code == 1
    assert "1 not delivered" in result.stderr
