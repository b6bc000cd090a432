"""The embedded Kafka and PostgreSQL, as real processes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Producer

from local.jar_lock import render, resolve
from local.jars import LOCK
from local.postgres import USER
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import EmbeddedPostgres, PostgresServer
from tests.fixtures.toolchains import need


def produce(cluster: KafkaCluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume_one(cluster: KafkaCluster, topic: str, group: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        return None if message is None else message.value()
    finally:
        consumer.close()


def test_two_clusters_are_two_worlds(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str, group: str) -> None:
    produce(kafka_c1, topic, b"on c1")
    produce(kafka_c2, topic, b"on c2")

    assert consume_one(kafka_c1, topic, group) == b"on c1"
    assert consume_one(kafka_c2, topic, group) == b"on c2"


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.soak), "kill"])
def test_a_cluster_keeps_its_records_over_an_end(
    end: str, tmp_path: Path, kafka_jars: None, topic: str, group: str
) -> None:
    cluster = KafkaCluster("own", tmp_path / "own")
    cluster.start()
    try:
        produce(cluster, topic, b"kept")
        getattr(cluster, end)()
        cluster.start()
        assert consume_one(cluster, topic, group) == b"kept"
    finally:
        cluster.stop()


def test_each_database_is_fresh(postgres: PostgresServer) -> None:
    first, second = postgres(), postgres()

    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE t (x int)")
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)


def test_the_server_wants_its_password_and_runs_as_nobody_special(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "server")
    server.start()
    try:
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (USER,)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.url, password="wrong")
        assert stat.S_IMODE((tmp_path / "server" / "password").stat().st_mode) == 0o600
        owner = int((tmp_path / "server" / "data" / "PG_VERSION").stat().st_uid)
        assert owner == os.geteuid() or os.geteuid() == 0 != owner
    finally:
        server.stop()


@pytest.mark.soak
@pytest.mark.network
@pytest.mark.timeout(400)
def test_the_lock_of_the_jars_is_what_maven_resolves() -> None:
    need("mvn")

    assert LOCK.read_text(encoding="ascii") == render(resolve())
