"""Setting and removing tenants."""

from __future__ import annotations

from typing import Final

from mesh.routing.codec import TABLE_FORMAT_OF_TENANTS
from mesh.rpc import tenants
from services.control.decisions.policies import Subject
from services.control.domain.tenants.tenants import TENANTS

NO_POLICY = tenants.TenantPolicy()
SUBJECT: Final = Subject(
    TENANTS,
    TABLE_FORMAT_OF_TENANTS,
    "passes over tenants: its gateways would show each tenant the topics of all others",
    lambda view: view.state.effective.tenant_policy or NO_POLICY,
)
