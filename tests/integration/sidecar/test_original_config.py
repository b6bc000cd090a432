"""A sidecar that is started with the original's files, on a Kafka that asks who connects."""

import json
import ssl
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import yaml

from services.sidecar.original.folder import SHIPPED
from tests.fixtures.ports import free_block
from tests.fixtures.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.processes import process
from tests.integration.sidecar.world import WITHIN_SECONDS, Instance, Kafka, started

MESH = "com.networknt.mesh.kafka"
BOTH = [f"{MESH}.ProducerStartupHook", f"{MESH}.ActiveConsumerStartupHook"]


def folder_of_the_original(folder: Path, port: int, **values: Any) -> Path:
    """Its files as they are shipped, and a values.yml."""
    folder.mkdir()
    for file in SHIPPED.glob("*.yml"):
        (folder / file.name).write_text(file.read_text())
    given = {
        "server.httpsPort": port,
        "security.enableVerifyJwt": False,
        "service.com.networknt.server.StartupHookProvider": BOTH,
        **{
            f"kafka-{side}.{name}": "string"
            for side in ("producer", "consumer")
            for name in ("keyFormat", "valueFormat")
        },
        **values,
    }
    (folder / "values.yml").write_text(yaml.safe_dump(given))
    return folder


def sidecar(folder: Path, port: int, **environment: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that has its settings from this folder."""
    settings = {"state_dir": str(folder / "state"), "audit_file": str(folder / "log" / "sidecar-audit.log")}
    return process(port, "--original-config", str(folder), settings=settings, environment=environment)


def test_it_serves_https_and_writes_and_reads_over_sasl_ssl(
    secured: SecuredKafka, tmp_path: Path, topic: str, group: str
) -> None:
    kafka, port = Kafka(secured.bootstrap), free_block(2)
    kafka.create(topic)
    values = {
        f"kafka-{side}.{name}": value
        for side in ("producer", "consumer")
        for name, value in {
            "bootstrap.servers": secured.sasl_tls,
            "username": USER,
            "ssl.truststore.location": str(secured.authority.certificate),
        }.items()
    }
    folder = folder_of_the_original(tmp_path / "config", port, **values)
    with sidecar(folder, port, KAFKA_PRODUCER_PASSWORD=PASSWORD, KAFKA_CONSUMER_PASSWORD=PASSWORD) as running:
        own = folder / "state" / "listener-certificate.pem"
        wait_until(own.exists, "it has made its certificate")
        trusted = ssl.create_default_context(cafile=str(own))
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted, timeout=WITHIN_SECONDS) as http:
            wait_until(lambda: healthy(http), "it serves, and Kafka lets it in")
            answer = http.post(f"/producers/{topic}", json={"records": [{"key": "alice", "value": "hello"}]})
            assert answer.json()["requestStatus"] == "OK", answer.text
            http.post(f"/consumers/{group}", json={"name": "c1"})
            instance = Instance(http, f"/consumers/{group}/instances/c1")
            instance.subscribe(topic)
            assert [(one["key"], one["value"]) for one in instance.read_all(1)] == [("alice", "hello")]
        running.terminate()
        _, told = running.communicate(timeout=WITHIN_SECONDS)
    assert [record.value for record in kafka.read(topic, 1)] == [b"hello"]
    audited = (folder / "log" / "sidecar-audit.log").read_text()  # as the original does unless it is told otherwise
    assert [json.loads(line)["auditType"] for line in audited.splitlines()] == ["PRODUCER", "ACTIVE_CONSUMER"]
    assert "client.rack rack-name is a placeholder, and left out" in told
    assert "listens on 127.0.0.1 only" in told
    assert "NOBODY IS ASKED WHO THEY ARE" in told
    assert PASSWORD not in told


def healthy(http: httpx.Client) -> bool:
    try:
        return http.get("/health/readiness").text == "OK"
    except httpx.TransportError:
        return False


def test_parts_without_their_hook_say_so(kafka: Kafka, tmp_path: Path, group: str) -> None:
    plain = {f"kafka-{side}.security.protocol": "PLAINTEXT" for side in ("producer", "consumer")}
    hooks = {"service.com.networknt.server.StartupHookProvider": [f"{MESH}.ProducerStartupHook"]}
    folder = folder_of_the_original(tmp_path / "config", 0, **plain, **hooks)
    with started(kafka.bootstrap, original_config_dir=folder, tls=False) as world:
        answer = world.http.post(f"/consumers/{group}", json={"name": "c1"})
        assert (answer.status_code, answer.json()["code"]) == (400, "ERR11019")
        assert answer.json()["description"].startswith("Startup hook ActiveConsumerStartupHook is not loaded properly")


def test_what_cannot_be_served_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    port = free_block(2)
    folder = folder_of_the_original(tmp_path / "config", port, **{"security.enableVerifyJwt": True})
    with sidecar(folder, port) as running:
        _, told = running.communicate(timeout=WITHIN_SECONDS)
    assert running.returncode == 2, told
    assert told.startswith("kafka-mesh sidecar: ")
    assert "nobody says where the keys are" in told
    assert "Traceback" not in told
