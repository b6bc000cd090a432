"""Records consumed again by a real control and a real sidecar, as an operator asks for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import topics_of
from tests.integration.meshctl.conftest import Meshctl
from tests.integration.meshctl.pipeline_member import PipelineMember
from tests.integration.meshctl.test_operating import as_json
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

PARTITIONS = 2


@pytest.fixture(scope="module")
def orders(kafka_c1: KafkaCluster) -> str:
    topic = f"roomc-orders-{uuid.uuid4().hex[:8]}"
    Kafka(kafka_c1.bootstrap).create(topic, partitions=PARTITIONS)
    return topic


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend().running() as backend:
        yield backend


@pytest.fixture(scope="module")
def sidecar(control: str, kafka_c1: KafkaCluster, backend: Backend, orders: str) -> Iterator[SidecarWorld]:
    """Its backend has the orders."""
    settings = {
        "reactive_topics": orders, "reactive_group": f"{orders}-till", "backend_url": backend.host_url,
        "value_format": "string",
    }  # fmt: skip
    with started(kafka_c1.bootstrap, control_addresses=control, name="till", **settings) as world:
        yield world


def offsets(backend: Backend) -> list[tuple[int, int]]:
    return sorted((each["partition"], each["offset"]) for each in backend.records)


def test_a_backend_has_records_again(
    meshctl: Meshctl, sidecar: SidecarWorld, backend: Backend, orders: str, kafka_c1: KafkaCluster
) -> None:
    kafka = Kafka(kafka_c1.bootstrap)
    kafka.write(orders, *({"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(10)))
    wait_until(lambda: len(backend.records) == 10, "the backend has them for the first time")
    backend.calls.clear()
    every = ("replay", "start", "--to", "backend", "--topic", orders)
    counted = as_json(meshctl, *every, "--dry-run")
    assert {(each["partition"], each["start_offset"], each["end_offset"]) for each in counted["partitions"]} == {
        (0, "0", "5"), (1, "0", "5")
    }  # fmt: skip
    assert len(backend.records) == 0
    one = ("--partition", "0", "--from", "1", "--until", "3", "--reason", "the tax was wrong", "--wait")
    done = as_json(meshctl, *every, *one)
    assert (done["state"], done["member"]) == ("REPLAY_STATE_DONE", "members/till")
    assert offsets(backend) == [(0, 1), (0, 2)]
    backend.calls.clear()
    told = meshctl(*every, "--from", "-1h", "--wait")
    assert "done: 100% (10 records)" in told.stdout
    assert len(offsets(backend)) == 10
    history = as_json(meshctl, "history", "--replay", done["name"])["entries"]
    assert {each["reason"] for each in history} == {"", "the tax was wrong"}


def test_a_group_goes_on_elsewhere_while_its_members_stop(
    meshctl: Meshctl, sidecar: SidecarWorld, orders: str, kafka_c1: KafkaCluster
) -> None:
    registered = {each["spec"]["cluster_name"] for each in as_json(meshctl, "cluster", "list")["clusters"]}
    if "home" not in registered:
        meshctl("cluster", "register", "home", kafka_c1.bootstrap)
    topic, group = f"{orders}-returns", f"{orders}-returns-readers"
    kafka = Kafka(kafka_c1.bootstrap)
    kafka.create(topic, partitions=1)
    meshctl("rule", "set", "--topic", topic, "--to", "home")
    kafka.write(topic, *({"value": b"%d" % n} for n in range(4)))
    instance = sidecar.create(group, "one")
    instance.subscribe(topic)
    assert len(instance.read_all(4)) == 4
    assert instance.commit().status_code == 200
    known = ("instances", "list", "--group", group)
    wait_until(lambda: as_json(meshctl, *known)["instances"], "control knows the instance")
    first = ("replay", "group", group, "--topic", topic, "--first")
    refused = meshctl(*first, "--yes", check=False)
    assert refused.returncode == 1
    assert "give --stop" in refused.stderr
    plan = as_json(meshctl, *first, "--stop", "--dry-run")
    assert [(each["committed_before"], each["start_offset"]) for each in plan["partitions"]] == [("4", "0")]
    done = as_json(meshctl, *first, "--stop", "--yes")
    assert done["state"] == "REPLAY_STATE_DONE", done
    wait_until(lambda: not as_json(meshctl, "instances", "orders", "--open")["orders"], "its member goes on")
    assert len(instance.read_all(4)) == 4


@pytest.fixture
def copied(meshctl: Meshctl, orders: str, kafka_c1: KafkaCluster) -> str:
    """A topic that the mesh has, with one beside it for its copies."""
    registered = {each["spec"]["cluster_name"] for each in as_json(meshctl, "cluster", "list")["clusters"]}
    if "home" not in registered:
        meshctl("cluster", "register", "home", kafka_c1.bootstrap)
    topic = f"{orders}-copied"
    if topic not in topics_of(kafka_c1.bootstrap):
        for name in (topic, f"{topic}-again"):
            Kafka(kafka_c1.bootstrap).create(name, partitions=PARTITIONS)
    meshctl("rule", "set", "--prefix", topic, "--to", "home")
    return topic


def test_a_topic_is_copied_cancelled_half_way_and_resumed(meshctl: Meshctl, control: str, copied: str) -> None:
    copy = ("replay", "copy", "--from", copied, "--to", f"{copied}-again")
    nobody = as_json(meshctl, *copy)
    assert nobody["description"].startswith("waits for a pipeline: none follows its replays")
    meshctl("replay", "cancel", nobody["name"])
    with PipelineMember(control).following() as pipeline:
        counted = meshctl(*copy, "--dry-run")
        assert [copied, "0", "0", "100", "37"] in [line.split() for line in counted.stdout.splitlines()]
        pipeline.holds = True
        half = as_json(meshctl, *copy, "--filter", "key != 'x'", "--rate", "1000")
        assert half["spec"]["topic"]["group"] == f"mesh-replay-{half['name'].removeprefix('replays/')}"
        wait_until(lambda: as_json(meshctl, "replay", "show", half["name"])["totals"]["records"] == "100", "half of it")
        assert "50% (100 records)" in meshctl("replay", "list").stdout
        cancelled = as_json(meshctl, "replay", "cancel", half["name"], "--wait")
        assert (cancelled["state"], cancelled["totals"]["offsets_done"]) == ("REPLAY_STATE_CANCELLED", "100")
        pipeline.holds = False
        resumed = meshctl("replay", "resume", half["name"], "--wait")
        assert "done: 100% (200 records), all of it" in resumed.stdout
        done = as_json(meshctl, "replay", "list", "-l", "1")["replays"][0]
        assert done["spec"] == half["spec"]
        assert done["reason"] == f"goes on with {half['name']}"
        again = meshctl("replay", "resume", done["name"], check=False)
        assert (again.returncode, "is done; start a new one" in again.stderr) == (1, True)
    elsewhere = meshctl("replay", "copy", "--from", "roomo-plums", "--to", copied, check=False)
    assert elsewhere.returncode == 2
    assert "give --from-cluster to read it from a cluster all the same" in elsewhere.stderr


def test_a_topic_is_profiled(meshctl: Meshctl, control: str, copied: str) -> None:
    unknown = meshctl("topic", "profile", copied, "--last", check=False)
    assert (unknown.returncode, "has not been looked at" in unknown.stderr) == (4, True)
    with PipelineMember(control).following():
        assert f"{copied} on home: all 10 records" in meshctl("topic", "profile", copied, "--whole").stdout
    assert as_json(meshctl, "topic", "profile", copied, "--last")["records"] == "10"
