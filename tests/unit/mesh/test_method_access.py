"""Each method of the contract states its access, and the statement decides what is audited."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from google.protobuf import descriptor_pool

from mesh.rpc import access, v1
from mesh.rpc.method_access import access_of, decides


def methods() -> list[str]:
    """Every method of the contract, as gRPC names it."""
    found = []
    for module in pkgutil.iter_modules(v1.__path__):
        importlib.import_module(f"{v1.__name__}.{module.name}")
        if module.name.endswith("_pb2"):
            file = descriptor_pool.Default().FindFileByName(f"mesh/v1/{module.name.removesuffix('_pb2')}.proto")
            services = file.services_by_name.values()
            found += [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]
    return found


@pytest.mark.parametrize("method", methods())
def test_a_method_states_its_roles_and_its_effect(method: str) -> None:
    stated = access_of(method)
    assert stated.roles
    assert stated.effect != access.EFFECT_UNSPECIFIED
    assert stated.effect == access.EFFECT_DECIDES or not stated.when_frozen, "only decisions are frozen"


@pytest.mark.parametrize("method", methods())
def test_only_an_operator_or_a_reporting_member_may_call_a_method_that_decides(method: str) -> None:
    if decides(method):
        assert access.ROLE_VIEWER not in access_of(method).roles


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("InstanceService/PlaceOrder", True),
        ("InstanceService/ReportOrder", True),
        ("InstanceService/FollowOrders", False),
        ("InstanceService/DescribeInstance", False),
        ("InstanceService/Beat", False),
        ("MemberReportService/Report", False),
    ],
)
def test_a_call_that_changes_the_log_decides(method: str, wanted: bool) -> None:
    assert decides(f"/mesh.v1.{method}") is wanted


def test_a_method_that_the_contract_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        access_of("/mesh.v1.RuleService/Guess")
