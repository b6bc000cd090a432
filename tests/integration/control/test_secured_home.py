"""A home cluster that wants to know who connects: the log gets there, and what is wrong is said without the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.oauth_issuer import CLIENT_SECRET
from tests.fixtures.secured_kafka import PASSWORD, SecuredKafka, Way
from tests.fixtures.sweeps import mostly
from tests.integration.control.world import World, log_in_kafka, until


def world_at(way: Way, database: str, events_topic: str) -> World:
    return World(database, way.bootstrap, events_topic, home_properties=way.properties)


@pytest.mark.parametrize("name", mostly(["mutual tls", "OAUTHBEARER over tls"], ["PLAIN", "SCRAM-SHA-512 over tls"]))
async def test_the_log_is_published_to_a_secured_home(
    name: str, secured: SecuredKafka, database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with world_at(secured.way(name), database, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.set("apples", "c1")
        await world.published(2)
    assert [event.position for event in log_in_kafka(secured.bootstrap, events_topic, 2)] == [1, 2]


async def test_a_cluster_that_wants_an_issuers_token_is_registered(
    secured: SecuredKafka, database: str, kafka_c1: KafkaCluster, events_topic: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(CLIENT_SECRET, encoding="ascii")
    way = secured.way("OAUTHBEARER over tls")
    properties = way.properties | {"sasl.oauthbearer.client.secret": f"${{file:{tmp_path / 'secret'}}}"}
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        cluster = await world.register("secured", way.bootstrap, producer_config=properties)
    assert cluster.spec.producer_config["sasl.oauthbearer.client.secret"].startswith("${file:")


async def test_a_wrong_password_is_said_and_a_renewed_file_heals(
    secured: SecuredKafka, database: str, kafka_c1: KafkaCluster, events_topic: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong-horse\n", encoding="ascii")
    way = secured.way("SCRAM-SHA-256", password=f"${{file:{secret}}}")
    async with world_at(way, database, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        publisher = world.control.publisher
        await until(lambda: way.bootstrap in publisher.trouble, "what is wrong is said")
        assert "wrong-horse" not in publisher.trouble
        renewed = secret.with_suffix(".new")
        renewed.write_text(f"{PASSWORD}\n", encoding="ascii")
        renewed.rename(secret)
        await world.published(1)
        await until(lambda: not publisher.trouble, "all is well")
