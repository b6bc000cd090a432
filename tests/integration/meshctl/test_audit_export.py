"""`meshctl audit export` from a real control to files and to a real rsyslog: all events, also after the next start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from local.leash import on_leash
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.rsyslog import Rsyslog, rsyslog
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import create_topic
from tests.unit.meshctl.siem.test_ocsf import problems

Meshctl = Callable[..., subprocess.CompletedProcess[str]]
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def audit_topic(kafka_c1: KafkaCluster, record_audit_topic: str) -> str:
    create_topic(kafka_c1.bootstrap, record_audit_topic, 1)
    return record_audit_topic


@pytest.fixture
def cluster(meshctl: Meshctl, kafka_c1: KafkaCluster, audit_topic: str) -> str:
    """A registered cluster with an audit topic."""
    meshctl("cluster", "register", "c1", kafka_c1.bootstrap, check=False)
    return kafka_c1.bootstrap


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Rsyslog]:
    folder = tmp_path / "rsyslog"
    folder.mkdir()
    with rsyslog(folder) as made:
        yield made


def audited(bootstrap: str, topic: str, *keys: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key in keys:
        event = {
            "id": str(uuid.uuid4()), "serviceId": "till", "auditType": "PRODUCER", "topic": "orders", "partition": 0,
            "offset": 7, "key": key, "auditStatus": "SUCCESS", "timestamp": int(time.time() * 1000),
        }  # fmt: skip
        producer.produce(topic, json.dumps(event))
    assert producer.flush(WITHIN_S) == 0


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def keys(events: list[dict[str, Any]]) -> list[str]:
    return [each["unmapped"]["key"] for each in events if each["class_uid"] == 6005]


def test_calls_and_records_go_to_a_file_and_the_next_run_goes_on(
    meshctl: Meshctl, cluster: str, audit_topic: str, tmp_path: Path
) -> None:
    name = f"siem-{uuid.uuid4().hex[:8]}"
    meshctl("rule", "set", "--topic", name, "--to", "nowhere", check=False)
    audited(cluster, audit_topic, f"{name}-1", f"{name}-2")
    file, state = tmp_path / "audit.jsonl", tmp_path / "state.json"
    export = ("audit", "export", "--to", str(file), "--state", str(state))
    told = meshctl(*export, "--since", "1h").stderr
    assert f"exported to {file}" in told
    first = lines(file)
    assert [each for event in first for each in problems(event)] == []
    [refused] = [each for each in first if each.get("resources") and name in each["resources"][0]["name"]]
    assert (refused["status"], refused["api"]["operation"], refused["activity_name"]) == (
        "Failure",
        "SetRule",
        "Update",
    )
    assert {f"{name}-1", f"{name}-2"} <= set(keys(first))
    assert file.stat().st_mode & 0o777 == 0o640

    audited(cluster, audit_topic, f"{name}-3")
    meshctl("rule", "set", "--topic", f"{name}-b", "--to", "nowhere", check=False)
    meshctl(*export)
    rest = lines(file)[len(first) :]
    numbers = [each["metadata"]["sequence"] for each in rest if each["class_uid"] == 6003]
    assert numbers
    assert min(numbers) > max(each["metadata"]["sequence"] for each in first if each["class_uid"] == 6003)
    assert f"{name}-3" in keys(rest)

    only = lines_of(meshctl("audit", "export", "--only", "calls", "--since", "1h").stdout)
    assert {each["class_uid"] for each in only} == {6003}
    state.write_text("{}")
    assert "holds no position" in meshctl(*export, check=False).stderr
    wrong = meshctl("audit", "export", "--to", "syslog://siem", check=False)
    assert wrong.returncode == 2
    assert "syslog+tls" in wrong.stderr


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_rsyslog_takes_the_events_apart(
    meshctl: Meshctl, cluster: str, audit_topic: str, receiver: Rsyslog, transport: str
) -> None:
    key = f"grün-{uuid.uuid4().hex[:8]}"
    audited(cluster, audit_topic, key)
    meshctl("audit", "export", "--since", "1h", "--to", f"syslog+{transport}://127.0.0.1:{receiver.port}")
    wait_until(lambda: any(key in each["text"] for each in receiver.received), "rsyslog has the event", WITHIN_S)
    [found] = [each for each in receiver.received if key in each["text"]]
    event = json.loads(found["text"].lstrip("\ufeff"))
    assert problems(event) == []
    assert event["unmapped"]["key"] == key
    assert (found["app"], found["id"], found["priority"]) == ("kafka-mesh", "PRODUCER", str(13 * 8 + 6))
    assert any(each["id"] == "RegisterCluster" for each in receiver.received)


def test_a_receiver_that_is_away_holds_the_export_and_nothing_is_lost(
    control: str, cluster: str, audit_topic: str, tmp_path: Path
) -> None:
    """The receiver begins after the events; the export waits for it, and follows until it is stopped."""
    folder = tmp_path / "rsyslog"
    folder.mkdir()
    name = f"held-{uuid.uuid4().hex[:8]}"
    audited(cluster, audit_topic, f"{name}-1")
    with rsyslog(folder) as first:
        port = first.port
    log = tmp_path / "export.log"
    command = [
        sys.executable, "-m", "meshctl", "audit", "export", "--follow", "--only", "records", "--since", "1h",
        "--state", str(tmp_path / "state.json"), "--to", f"syslog+tcp://127.0.0.1:{port}",
    ]  # fmt: skip
    with log.open("ab") as output:
        process = subprocess.Popen(
            on_leash(command), env=os.environ | {"MESHCTL_ADDRESS": control}, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: "is tried again" in log.read_text(), "the export says that it waits", WITHIN_S)
        with rsyslog(folder, port) as receiver:
            wait_until(lambda: _has(receiver, f"{name}-1"), "what was held has come", WITHIN_S)
            audited(cluster, audit_topic, f"{name}-2")
            wait_until(lambda: _has(receiver, f"{name}-2"), "what comes is followed", WITHIN_S)
    finally:
        process.terminate()
        assert process.wait(WITHIN_S) == 0, log.read_text()
    assert json.loads((tmp_path / "state.json").read_text())["record_ms"] > 0


def _has(receiver: Rsyslog, key: str) -> bool:
    return any(f'"{key}"' in each["text"] for each in receiver.received)


def test_events_go_to_a_topic_and_a_reader_that_ends_ends_the_export(
    control: str, cluster: str, audit_topic: str, tmp_path: Path
) -> None:
    name = f"siem-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, name, 1)
    audited(cluster, audit_topic, name)
    environment = os.environ | {"MESHCTL_ADDRESS": control}
    meshctl, kafka_mesh = f"{sys.executable} -m meshctl", f"{sys.executable} -m local.cli"
    command = f"{meshctl} audit export --since 1h | {kafka_mesh} produce {name} --bootstrap {cluster}"
    subprocess.run(["bash", "-o", "pipefail", "-c", command], env=environment, check=True, timeout=WITHIN_S)
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[dict[str, Any]] = []

    def has_it() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value() or b"{}"))
        return name in keys(found)

    wait_until(has_it, "the topic has the event", WITHIN_S)
    consumer.close()
    assert [each for event in found for each in problems(event)] == []

    gone = f"{meshctl} audit export --follow --since 1h > >(head -c 1) 2> {tmp_path / 'told'}"
    ended = subprocess.run(["bash", "-c", gone], env=environment, timeout=WITHIN_S, check=False)
    assert ended.returncode == 1
    assert "has ended" in (tmp_path / "told").read_text()
