"""`docker compose up` brings up the whole mesh, keeps its data, and heals: the very files that users get."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from local.jars import cache_folder
from tests.compose.engine import EngineError, engine
from tests.compose.images import build_missing
from tests.compose.project import COMMAND_TIMEOUT_S, ComposeError, Project

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

SERVICES = {"control", "router", "gateway", "sidecar", "pipeline", "postgres", "kafka-c1", "kafka-c2"}
STEPS = {"certificates", "migrate", "example"}
ADMIN_FOLDER = "/etc/kafka-mesh/certificates/admin"
HEAL_TIMEOUT_S = 120.0
RECORD_TIMEOUT_S = 120.0
SPARK_TIMEOUT_S = 600.0  # on a machine that does much else; two sessions start beside it
POLL_S = 0.25
T = TypeVar("T")


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """The project, up and healthy; stand-ins for the public images are built where they are missing."""
    try:
        with engine(cache_folder() / "engine") as environment:
            build_missing(environment)
            project = Project.on_free_ports(environment, f"mesh-{uuid.uuid4().hex[:8]}")
            try:
                project.up("--build")
                yield project
            finally:
                project.down("--volumes")
    except EngineError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def eventually(
    look: Callable[[], T],
    wanted: Callable[[T], bool],
    timeout: float = HEAL_TIMEOUT_S,
    explain: Callable[[], str] = str,
) -> T:
    """Returns the first value of `look` that is as `wanted`; fails with the last value, and what `explain` adds."""
    deadline = time.monotonic() + timeout
    while not wanted(seen := look()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s; last seen: {seen}\n{explain()}"
        time.sleep(POLL_S)
    return seen


def produce(bootstrap: str, topic: str, value: str) -> int:
    """Sends one record and returns its offset."""
    delivered: list[tuple[object, int]] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(RECORD_TIMEOUT_S * 1000)})
    producer.produce(
        topic, value, partition=0, on_delivery=lambda e, m: delivered.append((e, (m.offset() or 0) if m else -1))
    )
    assert producer.flush(RECORD_TIMEOUT_S) == 0
    [(error, offset)] = delivered
    assert error is None
    return offset


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    """The first `count` values of a topic.

    The consumer belongs to no group: a fresh broker first makes the 50 partitions of its groups' offsets, which takes
    longer than a minute on a busy machine.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    partitions = consumer.list_topics(topic, RECORD_TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    values: list[str] = []
    deadline = time.monotonic() + RECORD_TIMEOUT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def test_everything_is_healthy_and_the_migration_ran_first_and_once(project: Project) -> None:
    containers = project.containers()
    assert set(containers) == SERVICES | STEPS
    unhealthy = {name for name in SERVICES if containers[name]["State"]["Health"]["Status"] != "healthy"}
    assert unhealthy == set()
    for step in STEPS:
        state = containers[step]["State"]
        assert (state["Status"], state["ExitCode"], containers[step]["RestartCount"]) == ("exited", 0, 0)
    assert containers["migrate"]["State"]["FinishedAt"] < containers["control"]["State"]["StartedAt"]


def test_control_asks_for_a_certificate_and_the_one_of_the_admin_is_there_to_copy(
    project: Project, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{project.ports['CONTROL_PORT']}"

    def meshctl(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "meshctl", "--address", address, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)

    refused = meshctl("status")
    assert refused.returncode != 0
    assert "--tls-folder" in refused.stderr
    project.run("cp", f"certificates:{ADMIN_FOLDER}", str(tmp_path))
    answered = meshctl("history", "--tls-folder", str(tmp_path / "admin"))
    assert answered.returncode == 0, answered.stderr
    assert "  compose  " in answered.stdout


def test_no_service_has_the_key_of_the_authority(project: Project) -> None:
    for service in ("control", "router", "gateway", "sidecar", "pipeline"):
        found = project.run("exec", "-T", service, "find", "/etc/kafka-mesh", "-name", "*.key")
        assert found.split() == [f"/etc/kafka-mesh/certificates/{service}/tls.key"]


def test_a_record_goes_through_the_gateway_to_the_cluster_that_the_rule_names(project: Project) -> None:
    gateway = f"127.0.0.1:{project.ports['GATEWAY_PORT']}"
    produce(gateway, "bananas", "through the gateway")
    assert "through the gateway" in consume(f"127.0.0.1:{project.ports['KAFKA_C2_PORT']}", "bananas", 1)


def test_the_sidecar_speaks_http_and_its_records_take_the_same_way(project: Project) -> None:
    answer = httpx.post(
        f"http://127.0.0.1:{project.ports['SIDECAR_PORT']}/producers/apples",
        json={"keyFormat": "string", "valueFormat": "string", "records": [{"key": "k", "value": "by http"}]},
        timeout=RECORD_TIMEOUT_S,
    )
    assert answer.status_code == 200, answer.text
    assert "by http" in consume(f"127.0.0.1:{project.ports['KAFKA_C1_PORT']}", "apples", 1)


def test_what_became_of_a_record_is_in_postgres(project: Project) -> None:
    """By way of the sidecar's audit topic and the pipeline's job, whose Spark may still be starting."""

    def events() -> list[str]:
        query = "select distinct service_id from audit_events where topic = 'apples' and audit_status = 'SUCCESS'"
        return project.run("exec", "-T", "postgres", "psql", "-U", "mesh", "-tAc", query).split()

    def log_of_the_pipeline() -> str:
        return project.run("logs", "--no-color", "--no-log-prefix", "--tail", "80", "pipeline")

    eventually(events, lambda seen: "sidecar-1" in seen, SPARK_TIMEOUT_S, log_of_the_pipeline)


def test_a_crashed_service_comes_back_healthy(project: Project) -> None:
    with contextlib.suppress(ComposeError):  # the container may end before this process in it does
        project.run("exec", "-T", "router", "python3", "-c", "import os; os.kill(-1, 9)")

    def router() -> tuple[int, str]:
        found = project.containers()["router"]
        return found["RestartCount"], found["State"]["Health"]["Status"]

    restarts, health = eventually(router, lambda seen: seen[0] >= 1 and seen[1] == "healthy")
    assert (restarts, health) == (1, "healthy")


def test_services_run_as_an_ordinary_user_on_a_read_only_file_system(project: Project) -> None:
    containers = project.containers()
    for service in ("control", "router", "gateway", "sidecar", "pipeline"):
        found = containers[service]
        assert (found["Config"]["User"], found["HostConfig"]["ReadonlyRootfs"]) == ("mesh", True), service


def test_rules_and_records_are_kept_over_down_and_up(project: Project) -> None:
    """Last: of the services, those that serve records come back."""
    gateway = f"127.0.0.1:{project.ports['GATEWAY_PORT']}"
    before = produce(gateway, "apples", "before")
    project.down()
    project.up("gateway", "kafka-c2")
    assert produce(gateway, "apples", "after") == before + 1
    rules = project.run("exec", "-T", "postgres", "psql", "-U", "mesh", "-tAc", "select count(*) from events")
    assert int(rules) >= 4
