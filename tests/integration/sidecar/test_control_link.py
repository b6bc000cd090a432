"""What control hears of a sidecar, and that its absence harms nobody. Control is a server that the test holds."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from mesh.rpc import admin, events, instances, instances_grpc
from services.sidecar import control_link, metrics
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Kafka, SidecarWorld, started, value_of


class HeldControl(instances_grpc.InstanceServiceServicer):
    """Remembers what it was told; can be stopped and started on the same port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.known: dict[str, events.ConsumerInstance] = {}
        self.removed: dict[str, str] = {}
        self.members: list[admin.Member] = []
        self.actors: set[str] = set()
        self.refused = ""
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(2))
        instances_grpc.add_InstanceServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def RegisterInstance(self, request: instances.RegisterInstanceRequest, context: Any) -> events.ConsumerInstance:
        if request.instance.instance_id == self.refused:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "held by another sidecar")
        self.actors.add(str(dict(context.invocation_metadata()).get("x-mesh-actor")))
        name = f"instances/{request.instance.group}.{request.instance.instance_id}"
        self.known[name] = request.instance
        return request.instance

    def RemoveInstance(
        self, request: instances.RemoveInstanceRequest, context: Any
    ) -> instances.RemoveInstanceResponse:
        self.known.pop(request.name, None)
        self.removed[request.name] = request.cause
        return instances.RemoveInstanceResponse()

    def ListInstances(self, request: instances.ListInstancesRequest, context: Any) -> instances.ListInstancesResponse:
        return instances.ListInstancesResponse(instances=self.known.values())

    def Beat(self, request: instances.BeatRequest, context: Any) -> instances.BeatResponse:
        self.members.append(request.member)
        return instances.BeatResponse()


@pytest.fixture
def control() -> Iterator[HeldControl]:
    held = HeldControl()
    yield held
    held.stop()


@pytest.fixture
def sidecar(kafka: Kafka, control: HeldControl, monkeypatch: pytest.MonkeyPatch) -> Iterator[SidecarWorld]:
    monkeypatch.setattr(control_link, "MAX_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(control_link, "BEAT_SECONDS", 0.2)
    with started(kafka.bootstrap, control_address=control.address) as world:
        yield world


def test_control_hears_of_the_sidecar_and_its_instances(
    sidecar: SidecarWorld, control: HeldControl, orders: str, group: str
) -> None:
    control.start()
    instance = sidecar.create(group, "c1", keyFormat="string", valueFormat="binary")
    name = f"instances/{group}.c1"
    wait_until(lambda: name in control.known, "the instance is registered")
    known = control.known[name]
    assert (known.sidecar, known.key_format, known.value_format) == ("sidecar-test", "string", "binary")
    instance.subscribe(orders)
    wait_until(lambda: list(control.known[name].topics) == [orders], "its topics are known")
    instance.delete()
    wait_until(lambda: control.removed.get(name) == "deleted by the backend", "its end is known")
    assert {(member.name, member.kind) for member in control.members} == {
        ("members/sidecar-test", admin.MEMBER_KIND_SIDECAR)
    }
    assert control.actors == {"sidecar-test"}  # who decided, in control's history


def test_without_control_all_works_and_it_hears_everything_later(
    sidecar: SidecarWorld, control: HeldControl, orders: str, group: str
) -> None:
    gone, kept = sidecar.create(group, "gone"), sidecar.create(group, "kept")
    gone.delete()
    kept.subscribe(orders)
    sidecar.produce(orders, {"value": 1})
    assert [record["value"] for record in kept.read()] == [1]
    assert value_of(metrics.control_up) == 0
    control.start()
    wait_until(lambda: list(control.known) == [f"instances/{group}.kept"], "what is there is known")
    wait_until(lambda: list(control.removed) == [f"instances/{group}.gone"], "what is not there is known")
    wait_until(lambda: value_of(metrics.control_up) == 1, "control is known to hear")


def test_a_control_that_forgot_hears_it_again(sidecar: SidecarWorld, control: HeldControl, group: str) -> None:
    control.start()
    sidecar.create(group, "c1")
    wait_until(lambda: control.known, "the instance is registered")
    control.stop()
    control.known.clear()
    wait_until(lambda: value_of(metrics.control_up) == 0, "the loss is noticed")
    control.start()
    wait_until(lambda: control.known, "the instance is registered again")


def test_what_a_dead_sidecar_of_this_name_left_is_removed(control: HeldControl, sidecar: SidecarWorld) -> None:
    for name, holder in (("instances/g.old", "sidecar-test"), ("instances/g.foreign", "other")):
        control.known[name] = events.ConsumerInstance(name=name, sidecar=holder)
    control.start()
    wait_until(lambda: list(control.known) == ["instances/g.foreign"], "the other sidecar's instance alone is left")
    assert control.removed == {"instances/g.old": "sidecar started anew"}


def test_an_instance_that_control_refuses_does_not_stand_before_the_others(
    sidecar: SidecarWorld, control: HeldControl, group: str
) -> None:
    control.refused = "c1"
    control.start()
    for name in ("c1", "c2"):
        sidecar.create(group, name)
    wait_until(lambda: list(control.known) == [f"instances/{group}.c2"], "the other instance is registered")
    wait_until(lambda: value_of(metrics.control_up) == 1, "control is known to hear")


def test_the_end_of_the_sidecar_is_the_end_of_its_instances(kafka: Kafka, control: HeldControl, group: str) -> None:
    control.start()
    with started(kafka.bootstrap, control_address=control.address) as sidecar:
        sidecar.create(group, "c1")
        wait_until(lambda: control.known, "the instance is registered")
    assert control.removed == {f"instances/{group}.c1": "sidecar stopped"}
