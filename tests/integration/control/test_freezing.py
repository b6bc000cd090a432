"""The freeze switch: every changing call of every service is refused while it is on, and told why."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.api import field_behavior_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import PreconditionFailure

from mesh.rpc import admin, admin_grpc, discovery, events, instances, instances_grpc, record_rules, record_rules_grpc
from mesh.rpc.method_access import access_of, decides
from tests.integration.control.world import CALL, World, refused, status_of

STUBS = (admin_grpc, instances_grpc, record_rules_grpc)
ELSEWHERE = {"DiscoveryService"}
"""Services of the contract that others than control serve."""


async def freeze(world: World, reason: str = "inventory", **fields: str) -> admin.FreezeResponse:
    request = admin.FreezeRequest(reason=reason, **fields)
    return await world.changes.Freeze(request, timeout=CALL, metadata=[("x-mesh-actor", "ada")])


async def thaw(world: World) -> admin.ThawResponse:
    return await world.changes.Thaw(admin.ThawRequest(reason="counted"), timeout=CALL)


async def test_a_change_is_refused_with_who_when_why_and_the_way_out(mesh_of_two: World) -> None:
    world = mesh_of_two
    revision = (await freeze(world)).revision
    error = await refused(
        world.set("apples", "c1"),
        grpc.StatusCode.FAILED_PRECONDITION,
        "ada froze the mesh at",
        "(inventory)",
        "`meshctl thaw`",
    )
    failure = PreconditionFailure()
    assert status_of(error).details[0].Unpack(failure)
    assert failure.violations[0].type == "MESH_FROZEN"
    frozen = (await world.status()).frozen
    assert (frozen.revision, frozen.actor, frozen.reason) == (revision, "ada", "inventory")
    await thaw(world)
    assert not (await world.status()).HasField("frozen")
    assert (await world.set("apples", "c1")).revision == revision + 2
    kinds = [event.WhichOneof("payload") for event in await world.history(stream="freeze")]
    assert kinds == ["mesh_thawed", "mesh_frozen"]


def commands_of_control() -> list[MethodDescriptor]:
    """Every method of the contract that control serves and that could change something."""
    files = (admin.DESCRIPTOR, instances.DESCRIPTOR, record_rules.DESCRIPTOR, discovery.DESCRIPTOR)
    methods = [
        method
        for file in files
        for service in file.services_by_name.values()
        if service.name not in ELSEWHERE
        for method in service.methods
    ]
    return [method for method in methods if decides(path_of(method))]


def path_of(method: MethodDescriptor) -> str:
    """The method as gRPC names it."""
    return f"/{method.containing_service.full_name}/{method.name}"


async def test_no_changing_call_of_any_service_gets_past_the_freeze(world: World) -> None:
    """Those to come neither: who adds a method that could change something finds it refused here."""
    await freeze(world)
    tried = []
    for method in commands_of_control():
        if access_of(path_of(method)).when_frozen:
            continue
        await refused(call(world, method), grpc.StatusCode.FAILED_PRECONDITION, "ada froze the mesh")
        tried.append(method.name)
    assert {"RegisterCluster", "SetRule", "Revert", "ScheduleChange", "CreateRecordRule"} <= {*tried}
    assert (await world.status()).last_position == 1


def call(world: World, method: MethodDescriptor) -> Awaitable[object]:
    """The method with a request that has its required fields, and nothing else."""
    name = f"{method.containing_service.name}Stub"
    stub = next(getattr(module, name) for module in STUBS if hasattr(module, name))(world.channel)
    multicallable: Callable[..., Awaitable[Any]] = getattr(stub, method.name)
    request = message_factory.GetMessageClass(method.input_type)()
    fill(request)
    return multicallable(request, timeout=CALL)


def fill(message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        if field_behavior_pb2.REQUIRED not in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = getattr(message, field.name)
            inner.SetInParent()
            fill(inner)
        else:
            setattr(message, field.name, "some")


async def test_questions_and_checks_are_answered_while_frozen(mesh_of_two: World) -> None:
    await freeze(mesh_of_two)
    checked = await mesh_of_two.set("apples", "c1", validate_only=True)
    assert checked.rules[0].spec.target_cluster == "c1"
    assert (await mesh_of_two.explain("apples")).cluster == ""


async def test_sidecars_go_on_while_frozen(world: World) -> None:
    await freeze(world)
    instance = events.ConsumerInstance(group="g", instance_id="i", sidecar="s1")
    await world.instances.RegisterInstance(instances.RegisterInstanceRequest(instance=instance))
    assert len((await world.instances.ListInstances(instances.ListInstancesRequest())).instances) == 1
    await world.instances.RemoveInstance(instances.RemoveInstanceRequest(name="instances/g.i", sidecar="s1"))
    assert not (await world.instances.ListInstances(instances.ListInstancesRequest())).instances
    await world.instances.Beat(instances.BeatRequest(member=admin.Member(name="s1")))
    assert (await world.status()).last_position == 1, "instances come and go beside the log"


async def test_a_call_that_was_decided_before_is_told_so_again(mesh_of_two: World) -> None:
    request_id = str(uuid.uuid4())
    decided = await mesh_of_two.set("apples", "c1", request_id=request_id)
    await freeze(mesh_of_two)
    assert await mesh_of_two.set("apples", "c1", request_id=request_id) == decided
    other = mesh_of_two.set("apples", "c2", request_id=str(uuid.uuid4()))
    await refused(other, grpc.StatusCode.FAILED_PRECONDITION, "ada froze the mesh")


async def test_it_outlives_control(world: World) -> None:
    revision = (await freeze(world)).revision
    await world.stop()
    await world.start()
    assert (await world.status()).frozen.revision == revision
    await refused(world.set("apples", "c1"), grpc.StatusCode.FAILED_PRECONDITION, "inventory")


async def test_freezing_and_thawing_twice_is_freezing_and_thawing_once(world: World) -> None:
    request_id = str(uuid.uuid4())
    revision = (await freeze(world, request_id=request_id)).revision
    assert (await freeze(world)).revision == revision
    assert (await freeze(world, request_id=request_id)).revision == revision
    assert (await thaw(world)).revision == revision + 1
    assert (await thaw(world)).revision == 0
    assert (await world.status()).last_position == revision + 1


@pytest.mark.parametrize("reason", ["", "  "])
async def test_a_freeze_without_a_reason_is_none(world: World, reason: str) -> None:
    await refused(freeze(world, reason), grpc.StatusCode.INVALID_ARGUMENT, "say why")
