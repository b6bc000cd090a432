"""Records consumed again by a real control and a real sidecar, as an operator asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.meshctl.conftest import Meshctl
from tests.integration.meshctl.test_operating import as_json
from tests.integration.sidecar.world import Kafka, SidecarWorld, started


@pytest.fixture(scope="module")
def sidecar(control: str, kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    """A real one, which control hears of."""
    with started(kafka_c1.bootstrap, control_address=control, name="till") as world:
        yield world


def test_a_group_goes_on_elsewhere_while_its_members_stop(
    meshctl: Meshctl, sidecar: SidecarWorld, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    registered = {each["spec"]["cluster_name"] for each in as_json(meshctl, "cluster", "list")["clusters"]}
    if "home" not in registered:
        meshctl("cluster", "register", "home", kafka_c1.bootstrap)
    topic, group = unique_name("returns"), unique_name("readers")
    kafka = Kafka(kafka_c1.bootstrap)
    kafka.create(topic, partitions=1)
    meshctl("rule", "set", "--topic", topic, "--to", "home")
    kafka.write(topic, *({"value": b"%d" % n} for n in range(4)))
    instance = sidecar.create(group, "one")
    instance.subscribe(topic)
    assert len(instance.read_all(4)) == 4
    assert instance.commit().status_code == 200
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
