"""Control over a log of a million events (`MESH_EVENTS`): how long it takes until it is ready, and that all is checked.

Figures stand beside each step. What must hold: behind a snapshot, control is ready within `READY_S` of its start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from services.control.store.migrate import migrate
from services.control.verify_log import VerifySettings, verify
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.long_logs import LongLog, write
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

EVENTS = int(os.environ.get("MESH_EVENTS", "1000000"))
SNAPSHOT_EVERY = 1000
"""Control's own default."""
READY_S = float(os.environ.get("MESH_READY_S", "5"))
LONGEST_S = 1800.0
KAFKA_S = 20.0


@pytest.mark.timeout(2 * LONGEST_S)
def test_control_is_ready_soon_however_long_its_log_is(
    postgres: PostgresServer, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    database, topic = postgres(), unique_name("long-log")
    migrate(database)
    cluster_id = _topic(kafka_c1.bootstrap, topic)
    log = LongLog((kafka_c1.bootstrap, kafka_c2.bootstrap))
    with told(f"{EVENTS} events written"):
        write(log, EVENTS, database, kafka_c1.bootstrap, topic, cluster_id)
    environment = {
        "KAFKA_MESH_CONTROL_DATABASE_URL": database,
        "KAFKA_MESH_CONTROL_HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap,
        "KAFKA_MESH_CONTROL_EVENTS_TOPIC": topic,
        "KAFKA_MESH_CONTROL_AUDIT_TOPIC": f"{topic}-audit",
        "KAFKA_MESH_CONTROL_STOP_GRACE_S": "60",
    }
    with told("ready without a snapshot, the first time"):
        first = _ready(environment)
    _stopped(first)
    write(log, SNAPSHOT_EVERY - 1, database, kafka_c1.bootstrap, topic, cluster_id)
    began = time.monotonic()
    with told(f"ready behind a snapshot, {SNAPSHOT_EVERY - 1} events after it"):
        second = _ready(environment)
    took = time.monotonic() - began
    _stopped(second)
    settings = VerifySettings(
        database_url=database,  # type: ignore[arg-type]  # pydantic makes it a secret
        home_bootstrap_servers=(kafka_c1.bootstrap,),
        events_topic=topic,
    )
    with told("verify-log, mesh.events included"):
        report = verify(settings, with_kafka=True)
    assert [str(each) for each in report.differences] == []
    assert report.events == report.published == log.check.chain.position
    assert took < READY_S


@contextmanager
def told(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.1f} s")


def _topic(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, config=kept)])[topic].result(KAFKA_S)
    return str(admin.describe_cluster(request_timeout=KAFKA_S).result(KAFKA_S).cluster_id)


def _ready(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    port = free_block(2)
    listen = {
        "KAFKA_MESH_CONTROL_LISTEN": f"127.0.0.1:{port}",
        "KAFKA_MESH_CONTROL_METRICS_LISTEN": f"127.0.0.1:{port + 1}",
    }
    process = subprocess.Popen([sys.executable, "-m", "services.control"], env=os.environ | environment | listen)

    def is_ready() -> bool:
        assert process.poll() is None, "control has ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port + 1}/ready", timeout=KAFKA_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    wait_until(is_ready, "control is ready", LONGEST_S)
    return process


def _stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    assert process.wait(60) == 0
