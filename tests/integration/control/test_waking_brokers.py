"""A broker that stood still for longer than its session tells of no brokers as it wakes: control and sidecar go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from judge.systems.kafka import KafkaCluster
from judge.systems.processes import signalled
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

WITHIN_S = 60.0
MOST_WAKES = 20
ANSWER_S = 6.0
"""Longer than the session of a broker of a local cluster."""
PROBING = """
import sys
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from mesh.cluster_nodes import cluster_nodes
client = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
while True:
    try:
        print(len(cluster_nodes(client, float(sys.argv[2])).brokers), flush=True)
    except KafkaException:
        print("no answer", flush=True)
"""


@pytest.fixture
def cluster(kafka_jars: None, tmp_path: Path) -> Iterator[KafkaCluster]:
    found = KafkaCluster("c", tmp_path, free_block(3), 1)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.mark.timeout(600)
def test_a_client_outlives_the_answer_of_a_broker_that_knows_of_no_brokers(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    (broker,) = cluster.brokers
    answers = tmp_path / "answers"
    with answers.open("wb") as output:
        probing = subprocess.Popen([sys.executable, "-c", PROBING, cluster.bootstrap, str(ANSWER_S)], stdout=output)

    def told() -> list[str]:
        assert probing.poll() is None, "the client's process has ended"
        return answers.read_text(encoding="ascii").split("\n")

    try:
        wait_until(lambda: "1" in told(), "the cluster tells of its broker", WITHIN_S)
        for _ in range(MOST_WAKES):
            signalled(broker, signal.SIGSTOP)()
            wait_until(lambda: told()[-2:] == ["no answer", ""], "the broker stands still", WITHIN_S)
            signalled(broker, signal.SIGCONT)()
            wait_until(lambda: told()[-2:] == ["1", ""], "the broker is back", WITHIN_S)
            if "0" in told():
                return
        pytest.fail("the broker never told of no brokers as it woke")
    finally:
        probing.kill()
        probing.wait(WITHIN_S)
