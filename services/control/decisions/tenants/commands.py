"""Setting and removing tenants."""

from __future__ import annotations

from typing import Final

from mesh.routing.policies import TENANT_POLICY
from services.control.decisions.policies import Subject
from services.control.domain.tenants.tenants import TENANTS

SUBJECT: Final = Subject(
    TENANTS,
    TENANT_POLICY,
    "passes over tenants: its gateways would show each tenant the topics of all others",
)
