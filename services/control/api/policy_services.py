"""The services about policies that tables carry, each with its stubs."""

from __future__ import annotations

from typing import Any

from mesh.rpc import acls_grpc, listeners_grpc, protection_grpc, quotas_grpc, tenants_grpc, validation_grpc
from services.control.api.acl_service import AclService
from services.control.api.listener_service import ListenerService
from services.control.api.protection_service import ProtectionService
from services.control.api.quota_service import QuotaService
from services.control.api.tenant_service import TenantService
from services.control.api.validation_service import ValidationService
from services.control.decisions.acls.clusters import ClusterRights
from services.control.decisions.acls.commands import AclDecisions
from services.control.decisions.members.members import Members
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections


def policy_services(journal: Journal, members: Members, connections: Connections) -> tuple[tuple[Any, object], ...]:
    """Each with the module of its stubs."""
    below = members.routers_below
    return (
        (acls_grpc, AclService(journal, AclDecisions(journal, below), ClusterRights(journal, connections))),
        (quotas_grpc, QuotaService(journal, below)),
        (protection_grpc, ProtectionService(journal, below)),
        (validation_grpc, ValidationService(journal, below)),
        (tenants_grpc, TenantService(journal, below)),
        (listeners_grpc, ListenerService(journal, members)),
    )
