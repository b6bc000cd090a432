"""A certificate's role decides which methods its owner may call, and a member speaks for itself alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message

from mesh.rpc import access, admin, discovery, events, instances, pipelines, replays
from mesh.rpc.errors import RpcError
from mesh.rpc.principals import Principal, principal_of


def context(*names: str, transport: bytes = b"ssl") -> Any:
    proofs = {
        "transport_security_type": [transport],
        "x509_subject_alternative_name": [name.encode() for name in names],
    }
    return SimpleNamespace(auth_context=lambda: proofs)


def test_the_certificate_names_the_caller() -> None:
    assert principal_of(context("127.0.0.1", "spiffe://mesh/router/router-1")) == Principal(
        access.ROLE_ROUTER, "router-1"
    )
    assert str(principal_of(context("spiffe://corp.example/operator/ada"))) == "operator ada"


def test_the_history_names_a_person_without_the_role_in_the_certificate() -> None:
    assert Principal(access.ROLE_OPERATOR, "ada").actor == "ada"
    assert Principal(access.ROLE_SIDECAR, "shop").actor == "sidecar shop"


def test_without_tls_nobody_is_asked() -> None:
    assert principal_of(context(transport=b"insecure")) is None
    assert principal_of(SimpleNamespace(auth_context=dict)) is None


@pytest.mark.parametrize(
    "name",
    [
        "shop.example",
        "spiffe://mesh/king/ada",
        "spiffe://mesh/admin",
        "spiffe://mesh/admin/a/b",
        "spiffe://mesh/admin/control",
        "spiffe://mesh/admin/group:platform",
        "spiffe://mesh/admin/a b",
    ],
)
def test_a_certificate_that_names_no_caller_is_refused_with_the_names_that_it_has(name: str) -> None:
    with pytest.raises(RpcError, match="spiffe://MESH/ROLE/NAME") as refused:
        principal_of(context(name))
    assert refused.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert name in refused.value.message


@pytest.mark.parametrize(
    ("role", "method", "allowed"),
    [
        ("viewer", "RuleService/ListRules", True),
        ("viewer", "RuleService/SetRule", False),
        ("operator", "RuleService/SetRule", True),
        ("operator", "ClusterService/RegisterCluster", False),
        ("admin", "ClusterService/RegisterCluster", True),
        ("admin", "RuleService/ListRules", True),
        ("admin", "MemberReportService/Report", False),
        ("router", "MemberReportService/Report", True),
        ("router", "RuleService/SetRule", False),
        ("gateway", "DiscoveryService/Watch", True),
        ("sidecar", "DiscoveryService/Watch", False),
        ("sidecar", "InstanceService/Beat", True),
        ("sidecar", "MemberReportService/Report", False),
        ("pipeline", "ClusterService/ListClusters", True),
        ("pipeline", "InstanceService/RegisterInstance", False),
    ],
)
def test_a_role_has_its_methods_and_no_others(role: str, method: str, allowed: bool) -> None:
    principal = principal_of(context(f"spiffe://mesh/{role}/one"))
    assert principal is not None
    if allowed:
        principal.admit(f"/mesh.v1.{method}")
        return
    with pytest.raises(RpcError, match=f"certificate is of {role} one") as refused:
        principal.admit(f"/mesh.v1.{method}")
    assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED


CLAIMS: dict[str, list[Message]] = {
    "sidecar": [
        instances.BeatRequest(member=admin.Member(name="members/{}")),
        instances.RegisterInstanceRequest(instance=events.ConsumerInstance(sidecar="{}")),
        instances.FollowOrdersRequest(sidecar="{}"),
        replays.FollowReplaysRequest(member="{}"),
    ],
    "pipeline": [
        pipelines.ReportJobsRequest(pipeline="{}"),
        instances.FollowOrdersRequest(sidecar="pipelines/{}"),
        instances.ReportOrderRequest(sidecar="pipelines/{}"),
        replays.FollowReplaysRequest(member="{}"),
    ],
    "gateway": [discovery.WatchRequest(hello=discovery.Hello(member=admin.Member(name="{}")))],
    "router": [discovery.RouterReport(router=admin.Member(name="members/{}"))],
}


@pytest.mark.parametrize(
    ("role", "message"), [(role, message) for role, messages in CLAIMS.items() for message in messages]
)
def test_a_member_speaks_for_itself_alone(role: str, message: Message) -> None:
    principal = principal_of(context(f"spiffe://mesh/{role}/one"))
    assert principal is not None
    principal.admit_message(named(message, "one"))
    with pytest.raises(RpcError, match=r"names (pipelines/)?two; the certificate is of"):
        principal.admit_message(named(message, "two"))


def named(message: Message, name: str) -> Message:
    """The message with this name in the place of `{}`."""
    return json_format.Parse(json_format.MessageToJson(message).replace("{}", name), type(message)())


@pytest.mark.parametrize(("role", "other"), [(access.ROLE_PIPELINE, "one"), (access.ROLE_SIDECAR, "pipelines/one")])
def test_a_pipeline_and_a_sidecar_of_one_name_do_not_follow_the_orders_of_one_another(role: int, other: str) -> None:
    with pytest.raises(RpcError, match=f"names {other}; the certificate is of"):
        Principal(access.Role.ValueType(role), "one").admit_message(instances.FollowOrdersRequest(sidecar=other))


def test_a_worker_speaks_in_the_name_of_its_gateway_and_a_number() -> None:
    gateway = Principal(access.ROLE_GATEWAY, "edge")
    gateway.admit_message(named(CLAIMS["gateway"][0], "edge-2"))
    with pytest.raises(RpcError):
        gateway.admit_message(named(CLAIMS["gateway"][0], "edge-two"))


def test_an_operator_may_name_a_sidecar_whose_instance_goes() -> None:
    Principal(access.ROLE_OPERATOR, "ada").admit_message(instances.RemoveInstanceRequest(sidecar="shop"))
