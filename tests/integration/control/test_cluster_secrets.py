"""Who reaches the port of control reads none of its files and variables by the properties of a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from mesh.rpc import admin, routing
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sweeps import mostly
from tests.integration.control.world import CALL, World, refused

SECRET = "a-secret-of-control"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


def spec(world: World, config: str, name: str, value: str) -> routing.ClusterSpec:
    spec = routing.ClusterSpec(cluster_name="c9", bootstrap_servers=[world.home])
    getattr(spec, config)[name] = value
    return spec


@pytest.mark.parametrize("config", mostly(["producer_config"], ["consumer_config"]))
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitioner", "${file:%s}"),
        ("client.id", "${env:PATH}"),
        ("plugin.library.paths", "/tmp/library.so"),
        ("sasl.kerberos.kinit.cmd", "touch /tmp/was-here"),
        ("debug", "all"),
        ("sasl.password", "${file:%s}"),
        ("sasl.password", "${file:/etc/kafka-mesh/secrets/../../passwd}"),
        ("sasl.password", "${env:PATH}"),
        ("ssl.ca.location", "/etc/passwd"),
        ("ssl.ca.location", "ca.pem"),
        ("ssl.key.location", "/etc/kafka-mesh/secrets/../../passwd"),
        ("https.ca.location", "%s"),
        ("sasl.kerberos.keytab", "/etc/krb5.keytab"),
    ],
)
async def test_a_property_that_would_tell_or_run_something_is_refused_by_its_name(
    database: str, kafka_c1: KafkaCluster, events_topic: str, secret_file: Path, config: str, name: str, value: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic, secrets_folder="/etc/kafka-mesh/secrets") as world:
        wanted = spec(world, config, name, value.replace("%s", str(secret_file)))
        for call in (
            world.clusters.TestCluster(admin.TestClusterRequest(spec=wanted), timeout=CALL),
            world.clusters.RegisterCluster(admin.RegisterClusterRequest(spec=wanted), timeout=CALL),
        ):
            error = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, f"spec.{config}[{name}]")
            assert SECRET not in str(error)
        listed = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
        methods = {event.method.rpartition("/")[2] for event in listed.audit_events}
        assert methods == {"RegisterCluster", "TestCluster"}
        assert SECRET not in str(listed)


async def test_a_path_below_the_folder_that_is_no_file_is_refused(world: World) -> None:
    """Control of the fixture takes files of the folder of all tests."""
    with TemporaryDirectory() as folder:
        pipe = Path(folder, "pipe")
        os.mkfifo(pipe)
        wanted = spec(world, "producer_config", "ssl.ca.location", str(pipe))
        call = world.clusters.TestCluster(admin.TestClusterRequest(spec=wanted), timeout=CALL)
        await refused(call, grpc.StatusCode.INVALID_ARGUMENT, f"{pipe} is neither a file nor a folder")


async def test_a_secret_that_librdkafka_refuses_is_not_repeated(
    database: str, kafka_c1: KafkaCluster, events_topic: str, secret_file: Path
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic, secrets_folder=str(secret_file.parent)) as world:
        wanted = spec(world, "producer_config", "ssl.key.pem", f"${{file:{secret_file}}}")
        wanted.producer_config["security.protocol"] = "ssl"
        wanted.producer_config["ssl.certificate.pem"] = "no certificate"
        call = world.clusters.TestCluster(admin.TestClusterRequest(spec=wanted), timeout=CALL)
        error = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "its reason is not repeated")
        assert SECRET not in str(error)
